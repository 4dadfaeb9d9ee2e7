"""Where a profile is used: sessions that name it, and the newest runs of a version."""

from __future__ import annotations

from chatapp.admin import cells
from chatapp.admin.parts import Link, Table
from compaction.admin.tables import run_table
from compaction.models import CompactionProfile, CompactionRun, CompactionState

SESSIONS_SHOWN = 20
RUNS_SHOWN = 10


def use_table(profile: CompactionProfile) -> Table:
    """Return the sessions whose branches name the profile, and whether all others use it."""
    named = CompactionState.objects.filter(profile=profile.name).exclude(profile="")
    count = named.count()
    rows = list(
        named.order_by("pk")
        .select_related("branch__session__owner")
        .only(
            "branch__kind",
            "branch__session__title",
            "branch__session__owner__username",
        )[:SESSIONS_SHOWN]
    )
    more = None
    if count > len(rows):
        url = cells.list_url(CompactionState, profile__exact=profile.name)
        more = Link(label="All branches that name it", url=url)
    return Table(
        title="Where it is used",
        columns=("Session", "Owner", "Branch"),
        note=f"{default_words(profile)} Branches that name it: {count:,}."
        + (f" The first {len(rows)}:" if more else ""),
        rows=[
            (
                cells.session_link(state.branch.session),
                state.branch.session.owner.get_username(),
                cells.row_link(state.branch),
            )
            for state in rows
        ],
        empty="No session names it.",
        more=more,
    )


def default_words(profile: CompactionProfile) -> str:
    """Return who uses the profile without naming it."""
    if not profile.is_current:
        return "Sessions use the current version; this one only explains older runs."
    if profile.is_default:
        return "It is the default: every session that names no profile uses it."
    return "It is not the default: only sessions that name it use it."


def newest_runs(profile: CompactionProfile) -> Table:
    """Return the newest runs of exactly this version."""
    runs = CompactionRun.objects.filter(profile=profile).order_by("-created_at", "-id")
    url = cells.list_url(CompactionRun, profile__id__exact=profile.pk)
    return run_table(
        f"Newest runs of version {profile.version}",
        runs[:RUNS_SHOWN],
        more=Link(label="All runs of this version", url=url),
    )

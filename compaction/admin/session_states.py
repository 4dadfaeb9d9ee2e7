"""How compaction of each session in a list stands, in a word; and the filters that ask for it.

A page of the list takes two queries, however many rows it has. Filters begin with the few rows
that they are about, so that a hundred thousand sessions are not tested one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.lists import Condition, by_condition
from chatapp.database import database_now
from chatapp.models import Session
from compaction.admin.lists import UNFINISHED_STATUSES
from compaction.models import CompactionRun, CompactionState
from compaction.profiles import current_names

COMPACTING, QUEUED, FAILING, HELD, SUMMARISED, WHOLE = (
    "compacting", "queued", "failing", "held", "summarised", "whole",
)  # fmt: skip
WORDS: dict[str, tuple[str, str]] = {
    COMPACTING: ("Compacting", "busy"),
    QUEUED: ("Queued", "busy"),
    FAILING: ("Failing", "bad"),
    HELD: ("Held", "busy"),
    SUMMARISED: ("Summarised", "good"),
    WHOLE: ("Whole", ""),
}
"""Each state with its word and the tone of its badge. Of several that hold, the first is told."""
# No name of a profile is this.
DEFAULT = "-"


def states_of_sessions(sessions: Sequence[Session]) -> dict[UUID, SafeString | str]:
    """Return how the sessions' active branches stand, each as a badge."""
    keys = [row.pk for row in sessions]
    active = CompactionState.objects.filter(
        branch__session__in=keys, branch=F("branch__session__active_branch")
    )
    columns = (
        "cursor", "failures", "lease_owner", "lease_expires_at", "hold_through", "held_until",
    )  # fmt: skip
    states = {state.branch_id: state for state in active.only(*columns)}
    unfinished = CompactionRun.objects.filter(session__in=keys, status__in=UNFINISHED_STATUSES)
    waiting = set(unfinished.values_list("session", flat=True))
    now = database_now()
    found: dict[UUID, SafeString | str] = {}
    for session in sessions:
        state = states.get(session.active_branch_id) if session.active_branch_id else None
        name = _name_of(state, is_queued=session.pk in waiting, now=now)
        found[session.pk] = html.badge(*WORDS[name])
    return found


def _name_of(state: CompactionState | None, *, is_queued: bool, now: Any) -> str:
    if state is not None and state.lease_owner is not None:
        expires = state.lease_expires_at
        if expires is not None and expires > now:
            return COMPACTING
    if is_queued:
        return QUEUED
    if state is None:
        return WHOLE
    if state.failures:
        return FAILING
    if state.is_held_at(now):
        return HELD
    return SUMMARISED if state.cursor else WHOLE


def _on(**conditions: Any) -> Q:
    """Return the condition for sessions whose active branch's state is so."""
    states = CompactionState.objects.filter(**conditions)
    return Q(active_branch__in=states.values("branch"))


def _compacting() -> Q:
    return _on(lease_owner__isnull=False, lease_expires_at__gt=database_now())


def _queued() -> Q:
    runs = CompactionRun.objects.filter(status__in=UNFINISHED_STATUSES)
    return Q(pk__in=runs.values("session"))


def _held() -> Q:
    lasts = Q(held_until__isnull=True) | Q(held_until__gt=database_now())
    states = CompactionState.objects.filter(lasts, hold_through__gt=F("cursor"))
    return Q(active_branch__in=states.filter(hold_through__isnull=False).values("branch"))


def _is_summarised() -> Exists:
    """Return what is true of many sessions: asked of each in the list's order, few fill a page."""
    return Exists(CompactionState.objects.filter(branch=OuterRef("active_branch"), cursor__gt=0))


_CONDITIONS: dict[str, Condition] = {
    COMPACTING: _compacting,
    QUEUED: _queued,
    FAILING: lambda: _on(failures__gt=0),
    HELD: _held,
    SUMMARISED: lambda: Q(_is_summarised()),
    WHOLE: lambda: ~Q(_is_summarised()),
}
BY_STATE = by_condition(
    "compaction", "state", {name: (WORDS[name][0], _CONDITIONS[name]) for name in WORDS}
)
"""Sessions by what holds of their active branch; a session may be found under two names."""


class ByProfile(admin.SimpleListFilter):
    """Sessions by the profile that their active branch names; `-` for those without one."""

    title = "profile"
    parameter_name = "profile"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the profiles by name, and the default."""
        return [(DEFAULT, "The default"), *((name, name) for name in current_names())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the sessions of one profile; those that name none, or whose state is not stored."""
        wanted = self.value()
        if not wanted:
            return queryset
        if wanted == DEFAULT:
            own = CompactionState.objects.exclude(profile="")
            return queryset.exclude(active_branch__in=own.values("branch"))
        return queryset.filter(_on(profile=wanted))


BY_PROFILE = ByProfile

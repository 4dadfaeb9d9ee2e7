"""What each session adds to the totals, worked out where the session has changed since.

Totals are sums over one narrow row a session. One statement compares how sessions stand with how
they stood when their rows were written; those that differ, and new ones, are worked out anew, so
late rows count, a process that dies in between loses nothing, and what is erased is gone with its
session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.db.models import (
    Case,
    Count,
    F,
    IntegerField,
    Max,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, FirstValue, RowNumber

from chatapp.models import Branch, Message, Session
from compaction.models import CompactionProfile, DailyFigures, SessionFigures, SessionSummary
from compaction.models.summaries import HOLDS_EARLIER_VERSION
from compaction.profiles import find_profile, parameters_of

SESSIONS_AT_ONCE = 500
TRIES = 5
# What of a session its figures depend on, besides its profile's parameters.
_STOOD: dict[str, Any] = {
    "updated_at": F("updated_at"),
    "request_tokens": F("request_tokens"),
    "token_total": Coalesce("active_branch__token_total", 0),
    "cursor": Coalesce("active_branch__compaction_state__cursor", 0),
    "covered_tokens": Coalesce("active_branch__compaction_state__covered_tokens", 0),
    "profile": Coalesce("active_branch__compaction_state__profile", Value("")),
}
_COLUMNS = ("messages", "tokens_stored", "tokens_sent", *_STOOD)


def totals() -> dict[str, int]:
    """Return how much there is now, by its names in DailyFigures.

    What a profile sends is a figure of all its sessions: with a new version of any, all are new.
    """
    last = DailyFigures.objects.aggregate(at=Max("refreshed_at"))["at"]
    if last is None or CompactionProfile.objects.filter(created_at__gte=last).exists():
        forget_figures()
    refresh_session_figures()
    found = SessionFigures.objects.aggregate(
        sessions=Count("pk"),
        messages=Coalesce(Sum("messages"), 0),
        tokens_stored=Coalesce(Sum("tokens_stored"), 0),
        tokens_sent=Coalesce(Sum("tokens_sent"), 0),
    )
    return {name: int(value) for name, value in found.items()}


def forget_figures() -> None:
    """Have the figures of all sessions worked out anew."""
    SessionFigures.objects.all().delete()


def refresh_session_figures() -> int:
    """Work out the figures of the sessions that have changed; return how many.

    Each part of them is written for itself: where a process dies, the next goes on.
    """
    changed = changed_sessions().values_list("pk", flat=True)
    done, part = 0, list(changed[:SESSIONS_AT_ONCE])
    while part:
        done += _store(part)
        part = list(changed.filter(pk__gt=part[-1])[:SESSIONS_AT_ONCE])
    return done


def _store(ids: Sequence[UUID]) -> int:
    """Write the figures of some sessions and return of how many.

    A session that is deleted meanwhile refuses its row: the others are worked out again, and where
    that happens with each of TRIES, they are left to the next time.
    """
    for _ in range(TRIES):
        rows = _worked_out(ids)
        with suppress(IntegrityError):
            SessionFigures.objects.bulk_create(
                rows, update_conflicts=True, unique_fields=["session"], update_fields=_COLUMNS
            )
            return len(rows)
    return 0


def changed_sessions() -> QuerySet[Session]:
    """Return the sessions without figures, and those that stand otherwise than theirs say."""
    differs = Q(figures__isnull=True)
    for name in _STOOD:
        differs |= Q(**{f"figures__{name}__lt": F(f"now_{name}")})
        differs |= Q(**{f"figures__{name}__gt": F(f"now_{name}")})
    return Session.objects.alias(**_aliased()).filter(differs).order_by("pk")


def _worked_out(ids: Sequence[UUID]) -> list[SessionFigures]:
    """Return the figures of some sessions, in five statements.

    How they stand is read first: what changes meanwhile is seen the next time.
    """
    sessions: QuerySet[Any] = Session.objects.filter(pk__in=ids).order_by()
    stood: list[dict[str, Any]] = list(sessions.values("pk", **_aliased()))
    messages = _messages_of(ids)
    summaries: dict[UUID, int] = defaultdict(int)
    for session, tokens in _sent_summaries(ids).values_list("session", "summary_tokens"):
        summaries[session] += tokens
    return [
        SessionFigures(
            session_id=row["pk"],
            messages=messages[row["pk"]],
            tokens_stored=row["now_token_total"],
            tokens_sent=_behind(row) + summaries[row["pk"]],
            **{name: row[f"now_{name}"] for name in _STOOD},
        )
        for row in stood
    ]


def _messages_of(ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return how many messages some sessions have, their forks' own ones included.

    A branch that begins by itself has its number stored; of forks, which are shorter, it is
    counted. So a long conversation is not read again whenever a message has come.
    """
    branches = Branch.objects.filter(session__in=ids)
    forks = branches.filter(parent__isnull=False, fork_position__isnull=False)
    whole = branches.exclude(pk__in=forks.values("pk")).order_by().values_list("session")
    found = defaultdict(int, whole.annotate(count=Sum("message_count")))
    own = Message.objects.filter(branch__in=forks, kind__in=Message.SPOKEN).order_by()
    for session, count in own.values_list("branch__session").annotate(count=Count("pk")):
        found[session] += count
    return found


def _aliased() -> dict[str, Any]:
    return {f"now_{name}": value for name, value in _STOOD.items()}


def _behind(row: dict[str, Any]) -> int:
    """Return the tokens of messages that a session's next request would send.

    Taken as what the active branch has behind its cursor. Left out are pinned messages before it
    and a question whose turn was cut; a branch whose state was never worked out (a fork that
    nobody used yet) counts whole, and a profile's limit on sent messages is not applied.
    """
    return max(0, int(row["now_token_total"] - row["now_covered_tokens"]))


def _sent_summaries(ids: Sequence[UUID]) -> QuerySet[SessionSummary]:
    """Return the summaries that the next requests of some sessions would send.

    Those are the newest of the active branch up to its cursor, as many as its profile sends, and an
    fallback digest that is newer. Left out are summaries that a fork inherits from its parent, and
    the placeholders of old data.
    """
    # One that holds what was before it is sent alone.
    beside = Q(rank_of_kind__lte=F("most"), version_of_newest__lt=HOLDS_EARLIER_VERSION)
    written = Q(is_digest=False) & (Q(rank_of_kind=1) | beside)
    return (
        _candidates()
        .filter(session__in=ids)
        .annotate(rank=_newest_of("branch"), rank_of_kind=_newest_of("branch", "is_digest"))
        .annotate(version_of_newest=_version_of_newest(), most=_limits())
        .filter(written | Q(is_digest=True, rank=1))
    )


def _newest_of(*columns: str) -> Window:
    """Return the rank among the summaries that have these columns in common, the newest first."""
    parts = [F(column) for column in columns]
    return Window(RowNumber(), partition_by=parts, order_by=F("covers_through").desc())


def _version_of_newest() -> Window:
    """Return the format version of the newest summary of the branch and kind."""
    return Window(
        FirstValue("format_version"),
        partition_by=[F("branch"), F("is_digest")],
        order_by=F("covers_through").desc(),
    )


def _candidates() -> QuerySet[SessionSummary]:
    return SessionSummary.objects.filter(
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
        session__active_branch=F("branch"),
        branch__compaction_state__cursor__gte=F("covers_through"),
    )


def _limits() -> Case:
    """Return how many summaries a branch sends: by its profile's name, the default's otherwise."""
    common = _limit_of(find_profile())
    current = CompactionProfile.objects.filter(is_current=True)
    limits = {row.name: _limit_of(row) for row in current}
    whens = [
        When(branch__compaction_state__profile=name, then=Value(limit))
        for name, limit in limits.items()
        if limit != common
    ]
    return Case(*whens, default=Value(common), output_field=IntegerField())


def _limit_of(row: CompactionProfile) -> int:
    """Return how many summaries a profile sends at most."""
    return parameters_of(row).summary_limit

"""Hindsight: of the old facts that later turns named, how many a summary knew.

What later messages name is what was needed: labels that nobody has to write.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Subquery
from django.db.models.functions import Substr
from django.utils import timezone

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, rows_before, rows_from
from compaction.engine.fidelity.entities import find_entities
from compaction.models import CompactionState, SessionSummary, SummaryQuality
from compaction.profiles import find_profile, parameters_of
from compaction.selectors import summaries_of

# Runs come one by one, and each leaves one summary behind: the oldest that waits is near the end.
SUMMARIES_LOOKED_AT = 50
SUMMARIES_AT_ONCE = 5
BRANCHES_AT_ONCE = 100
_READ = ("covers_through", "created_at", "quality__hindsight_at")
MESSAGES_READ = 400
MESSAGE_CHARS = 4000
# Tools name whatever they find: their output is no sign that a fact was needed.
_SPEAKERS = (Message.Role.USER, Message.Role.ASSISTANT)


def note_hindsight(branch: Branch, *, turns: int) -> int:
    """Give summaries of the branch's path their hindsight, `turns` user messages later; how many.

    Turns count that were said after the summary was made: what stayed verbatim beside it is no
    later turn. Each summary is looked at once. Where the turns name no fact that its messages
    named, `hindsight` stays empty. A call reads a bounded number of rows, however long the
    conversation is; 0 turns: none.
    """
    if turns <= 0:
        return 0
    noted = 0
    for summary in _waiting(branch, turns)[:SUMMARIES_AT_ONCE]:
        end = _end_of_turns(branch, summary, turns)
        if end is None:
            # Newer summaries have fewer turns behind them.
            break
        noted += _note(summary.pk, _named(branch, summary, end))
    return noted


def note_waiting(*, most: int = BRANCHES_AT_ONCE) -> int:
    """Do the same for the branches whose summaries were made last, at most so many; how many.

    A conversation that goes on without another compaction needs no run for it.
    """
    waiting = SummaryQuality.objects.filter(
        hindsight_at__isnull=True, summary__status=SessionSummary.Status.ACTIVE
    )
    newest = waiting.order_by("-summary__created_at").values_list("summary__branch", flat=True)
    noted = 0
    for branch in Branch.objects.filter(pk__in=[*newest[:most]]).select_related("session"):
        state = CompactionState.objects.filter(pk=branch.pk).first()
        profile = parameters_of(find_profile(state.profile if state else ""))
        noted += note_hindsight(branch, turns=profile.hindsight_turns)
    return noted


def _waiting(branch: Branch, turns: int) -> list[SessionSummary]:
    """Return the newest summaries that were measured and not looked at yet, oldest first.

    Those that too few user messages came after are left out where that is told by the branch's own.
    """
    rows = summaries_of(branch).select_related("quality").only(*_READ)
    if branch.parent_id is None:
        newest = _asked().filter(branch=branch).order_by("-position").values("created_at")
        rows = rows.filter(created_at__lt=Subquery(newest[turns - 1 : turns]))
    return [
        summary
        for summary in reversed(rows[:SUMMARIES_LOOKED_AT])
        if hasattr(summary, "quality") and summary.quality.hindsight_at is None
    ]


def _end_of_turns(branch: Branch, summary: SessionSummary, turns: int) -> int | None:
    """Return the position of the last of so many user messages; None while there are fewer.

    The newest of all are looked at first: a backlog that was there before the summary, and is
    worked off in batches, is not gone through for each of them.
    """
    asked = _asked()
    start = summary.covers_through + 1
    newest = rows_before(branch, asked.only("position", "created_at"), most=turns, start=start)
    if len(newest) < turns or newest[0].created_at <= summary.created_at:
        return None
    older = Message.objects.filter(
        kind__in=Message.SPOKEN, created_at__lte=summary.created_at
    ).only("position")
    there = rows_before(branch, older, most=1, start=start)
    later = asked.filter(created_at__gt=summary.created_at).only("position")
    first = there[0].position + 1 if there else start
    found = rows_from(branch, later, start=first, most=turns)
    return found[-1].position if len(found) == turns else None


def _asked() -> QuerySet[Message]:
    return Message.objects.filter(kind=Message.Kind.MESSAGE, role=Message.Role.USER)


def _named(branch: Branch, summary: SessionSummary, through: int) -> frozenset[str]:
    """Return the keys of what the messages of a stretch name."""
    later = path_messages(branch, after=summary.covers_through, through=through)
    said = later.filter(
        kind=Message.Kind.MESSAGE, role__in=_SPEAKERS, created_at__gt=summary.created_at
    )
    pieces = said.values_list(Substr("content", 1, MESSAGE_CHARS), flat=True)[:MESSAGES_READ]
    return frozenset(one.key for piece in pieces for one in find_entities(piece or ""))


def _note(summary: Any, named: frozenset[str]) -> int:
    rows = SummaryQuality.objects.filter(pk=summary)
    facts = rows.values_list("facts", flat=True).first() or []
    known = [bool(is_known) for key, is_known, _ in facts if key in named]
    return rows.update(
        hindsight=sum(known) / len(known) if known else None,
        hindsight_facts=len(known),
        hindsight_at=timezone.now(),
    )

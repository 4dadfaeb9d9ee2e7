"""Hindsight: of the old facts that later turns named, how many a summary knew.

What later messages name is what was needed: labels that nobody has to write.
"""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Substr
from django.utils import timezone

from chatapp.models import Branch, Message
from chatapp.selectors import path_messages, rows_from
from compaction.engine.fidelity.entities import find_entities
from compaction.models import SummaryQuality
from compaction.selectors import summaries_of

# Runs come one by one, and each leaves one summary behind: the oldest that waits is near the end.
SUMMARIES_LOOKED_AT = 50
SUMMARIES_AT_ONCE = 5
MESSAGES_READ = 400
MESSAGE_CHARS = 4000
# Tools name whatever they find: their output is no sign that a fact was needed.
_SPEAKERS = (Message.Role.USER, Message.Role.ASSISTANT)


def note_hindsight(branch: Branch, *, turns: int) -> int:
    """Give summaries of the branch's path their hindsight, `turns` user messages later; how many.

    Each is looked at once. Where the turns name no fact that its messages named, `hindsight` stays
    empty. A call reads a bounded number of rows, however long the conversation is; 0 turns: none.
    """
    if turns <= 0:
        return 0
    noted = 0
    for summary, covers_through in _waiting(branch)[:SUMMARIES_AT_ONCE]:
        end = _end_of_turns(branch, covers_through, turns)
        if end is None:
            # Newer summaries have fewer turns behind them.
            break
        noted += _note(summary, _named(branch, covers_through, end))
    return noted


def _waiting(branch: Branch) -> list[tuple[Any, int]]:
    """Return the newest summaries that were measured and not looked at yet, oldest first."""
    rows = summaries_of(branch).values_list(
        "pk", "covers_through", "quality__version", "quality__hindsight_at"
    )
    newest = list(rows[:SUMMARIES_LOOKED_AT])
    return [
        (pk, covers_through)
        for pk, covers_through, version, looked_at in reversed(newest)
        if version is not None and looked_at is None
    ]


def _end_of_turns(branch: Branch, after: int, turns: int) -> int | None:
    """Return the position of the last of so many user messages; None while there are fewer."""
    asked = Message.objects.filter(kind=Message.Kind.MESSAGE, role=Message.Role.USER)
    found = rows_from(branch, asked.only("position"), start=after + 1, most=turns)
    return found[-1].position if len(found) == turns else None


def _named(branch: Branch, after: int, through: int) -> frozenset[str]:
    """Return the keys of what the messages of a stretch name."""
    said = path_messages(branch, after=after, through=through).filter(role__in=_SPEAKERS)
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

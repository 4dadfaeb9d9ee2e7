"""A person's instructions for a stretch: later summaries of the same messages carry them on.

They are stored with the summary that was made by them. When that one is restored and its messages
are summarised again by a rule, or when the next summary takes its text in, they count again,
unless the new run has instructions of its own. Who changes a summary's instructions changes what is
carried on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce

from chatapp.audit import record
from chatapp.formatting import short_id
from chatapp.selectors import path_messages
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.types import Item
from compaction.errors import CompactionError
from compaction.models import CompactionRun, SessionSummary

MOST_INSTRUCTION_CHARS = 4_000
Status = SessionSummary.Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Instructions that a run carries on, and the id of the user whose they are."""

    text: str = ""
    by: Any = None


def carried_instructions(
    snapshot: BranchSnapshot, items: Iterable[Item], *, before: Iterable[SessionSummary]
) -> Carried:
    """Return the instructions of what a run is about to summarise; empty where there are none.

    Those are the instructions of the summaries that it continues (`before`), and of restored ones
    that began at one of its messages. One query, however long the branch is, and none where no
    summary of the session has any.
    """
    known = snapshot.state.known_to_run
    if known is not None and not known.has_instructions:
        return Carried()
    last = max((item.position for item in items), default=snapshot.state.cursor)
    read = path_messages(snapshot.branch, after=snapshot.state.cursor, through=last)
    restored = Q(status=Status.RESTORED, kind=SessionSummary.Kind.COMPACTION)
    restored &= Q(session=snapshot.session.pk, first_message__in=read.values("pk"))
    rows = SessionSummary.objects.filter(restored | Q(pk__in=[row.pk for row in before]))
    # Rows of older versions know it by their run alone.
    author = Coalesce("instructions_by", "run__requested_by")
    found = rows.only("covers_from", "covers_through", "instructions").annotate(whose=author)
    return _together(_newest_of_each(found.order_by("-created_at")))


def instructions_of(summary: SessionSummary) -> Carried:
    """Return the instructions that a new version of a summary carries on."""
    asked_by = summary.run.requested_by_id if summary.run is not None else None
    return Carried(text=summary.instructions, by=summary.instructions_by_id or asked_by)


def _newest_of_each(newest_first: Iterable[SessionSummary]) -> list[SessionSummary]:
    """Return the summaries of different stretches in order, of each stretch the newest.

    A person may have emptied the newest one's instructions: then those before it are not meant.
    """
    found: list[SessionSummary] = []
    for row in newest_first:
        apart = (
            row.covers_through < one.covers_from or one.covers_through < row.covers_from
            for one in found
        )
        if all(apart):
            found.append(row)
    return sorted(found, key=lambda row: row.covers_from)


def _together(rows: list[SessionSummary]) -> Carried:
    """Return the texts one behind the other, each once, as far as there is room."""
    told = [row for row in rows if row.instructions.strip()]
    texts = list(dict.fromkeys(row.instructions.strip() for row in told))
    text = "\n\n".join(texts)[:MOST_INSTRUCTION_CHARS]
    return Carried(text=text, by=getattr(told[-1], "whose", None) if told else None)


def change_instructions(summary: SessionSummary, text: str, *, by: Any = None) -> None:
    """Give a summary other instructions, or none; the next summary of its messages gets them.

    Raises CompactionError for a text that is too long.
    """
    text = text.strip()
    if len(text) > MOST_INSTRUCTION_CHARS:
        raise CompactionError(
            f"The instructions have {len(text):,} characters; at most "
            f"{MOST_INSTRUCTION_CHARS:,} are taken."
        )
    with transaction.atomic():
        SessionSummary.objects.filter(pk=summary.pk).update(
            instructions=text, instructions_by=getattr(by, "pk", None) if text else None
        )
        did = "changed" if text else "taken away"
        words = f"The instructions of summary {short_id(summary.pk)} were {did}."
        branch = summary.branch_id
        record(summary.session_id, "instructions_changed", words, by=by, branch=branch)
    summary.refresh_from_db(fields=["instructions", "instructions_by"])


def forget_instructions_of(user: Any) -> None:
    """Take a person's instructions away wherever they were carried on to, also among others'."""
    theirs = SessionSummary.objects.filter(instructions_by=user).exclude(instructions="")
    for session_id, text in set(theirs.values_list("session", "instructions")):
        said = {"session": session_id, "instructions__contains": text}
        SessionSummary.objects.filter(**said).update(instructions="", instructions_by=None)
        # Who had it made again took the words over from the form.
        CompactionRun.objects.filter(**said).update(instructions="")

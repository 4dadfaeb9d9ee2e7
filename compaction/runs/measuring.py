"""A person's text is measured as a model's is: how much it knows, and where its lines come from.

All messages that it stands for are read for it, so a worker does that once the text counts. It
never stands in the way of the person: what cannot be measured stays unmeasured.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from chatapp.llm.registry import UnknownModelError
from chatapp.models import Message
from compaction.branches.snapshot import snapshot_of
from compaction.convert import read_items
from compaction.engine.policy.reasons import Reason
from compaction.engine.types import Outcome
from compaction.models import SessionSummary
from compaction.runs import queue
from compaction.runs.strategy import ContinuedTexts, with_sources
from compaction.selectors import continued_by
from compaction.summaries.editing import Edited, edit_summary
from compaction.summaries.fidelity import store_quality


def edit_and_measure(
    summary: SessionSummary, *, text: str, author: Any, instructions: str | None = None
) -> Edited:
    """Store a person's text as edit_summary() does, and have a worker measure it."""
    edited = edit_summary(summary, text=text, author=author, instructions=instructions)
    queue.enqueue_measuring(edited.summary.pk)
    return edited


def measure_edited(summary_id: UUID) -> str:
    """Measure a person's text and store what came of it; return a word for the queue's own list.

    A text that is measured already, or gone, stays as it is: tasks may come twice.
    """
    rows = SessionSummary.objects.filter(pk=summary_id, reason=Reason.EDITED, quality=None)
    summary = rows.select_related("session", "branch", "previous").first()
    if summary is None:
        return "nothing to measure"
    outcome = _measured(summary)
    if outcome is None or outcome.quality is None:
        return "not measured"
    try:
        with transaction.atomic():
            store_quality(summary, outcome)
    except IntegrityError:
        return "gone, or measured meanwhile"
    return "measured"


def _measured(summary: SessionSummary) -> Outcome | None:
    """Return the text as an outcome with its lines and quality; None where nothing is to go by."""
    sources = Message.objects.filter(summary_links__summary=summary)
    items = tuple(read_items(sources.order_by("position")))
    if not items:
        return None
    try:
        snapshot = snapshot_of(summary.session, summary.branch)
        before = continued_by(summary)
        outcome = Outcome(
            text=summary.summary_text,
            items=items,
            chunk_count=0,
            max_depth=0,
            truncated=False,
            input_tokens=summary.approx_tokens,
            output_tokens=summary.summary_tokens,
        )
        previous = "\n\n".join(row.summary_text for row in before)
        texts = ContinuedTexts(previous=previous, before=before)
        return with_sources(snapshot, outcome, texts=texts)
    except UnknownModelError:
        # The session's model is gone from the settings: nobody can say how large a text is.
        return None

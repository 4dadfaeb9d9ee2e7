"""What the row of a summary says beside its text, and the placeholder that marks its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chatapp.models import Branch, Message
from chatapp.transcript import Gap, insert_between
from chatapp.transcript.writing import NewMessage
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.parameters import Profile
from compaction.engine.rendering import with_files
from compaction.engine.types import Outcome
from compaction.models import CompactionRun, SessionSummary
from compaction.models.summaries import FORMAT_VERSION, SENDS_FILES_VERSION
from compaction.summaries.summarising_models import summariser_names

PLACEHOLDER_NOTICE = "Earlier messages were summarised here to keep the context small."
STRATEGY_VERSION = "strategy_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Tokens of the whole next request, before and after (sizes.sizes_of); of the new text.

    `sent` is what the summary costs in a request: its text, frame and abridged history. `passed`
    are the tokens of the messages whose place it takes, `again` what of them is sent all the same,
    `replaced` the summaries that it takes the place of, as they were sent, `frames` what the
    messages of the request take more by their frames, less where it has fewer of them.
    """

    before: int
    after: int
    summary: int
    sent: int = 0
    passed: int = 0
    again: int = 0
    replaced: int = 0
    frames: int = 0

    def ratio(self, outcome: Outcome) -> float:
        """Return what the summary costs as a part of what it was made of; 0 without an input."""
        cost = self.sent or outcome.output_tokens
        return cost / outcome.input_tokens if outcome.input_tokens else 0.0


def asked_columns(snapshot: BranchSnapshot, run: CompactionRun, outcome: Outcome) -> dict[str, Any]:
    """Return the columns that say who was asked for the summary, and how."""
    profile = snapshot.summary_profile
    if outcome.writer:
        return {"model": outcome.writer[:100], "keep_last_n": _kept_by_count(profile, run)}
    return {
        "summary_prompt": outcome.prompt,
        "prompt_version": outcome.prompt_version[:40],
        "model": (outcome.model or summariser_names(snapshot.session, profile)[0])[:100],
        "temperature": profile.temperature,
        "target_summary_tokens": profile.target_summary_tokens,
        "keep_last_n": _kept_by_count(profile, run),
    }


def _kept_by_count(profile: Profile, run: CompactionRun) -> int:
    """Return how many messages were to be kept; the setting where the cut counted tokens."""
    return (profile.tail or profile.keep_last_n) if run.keep_last_n is None else run.keep_last_n


def metadata_of(run: CompactionRun, outcome: Outcome, sizes: Sizes) -> dict[str, Any]:
    """Return the metadata: counts of the whole tree, leaves and halvings apart from merges."""
    return {
        "algorithm": outcome.algorithm,
        "trigger": run.trigger,
        "chunk_count": outcome.chunk_count,
        "max_depth": outcome.max_depth,
        "truncated": outcome.truncated,
        "compression_ratio": round(sizes.ratio(outcome), 4),
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
    } | dict(outcome.metadata)


def format_version_of(outcome: Outcome) -> int:
    """Return the format in which a summary is stored and sent."""
    # Lists of files hold those before them: behind several texts they would be sent several times.
    return SENDS_FILES_VERSION if outcome.holds_earlier else FORMAT_VERSION


def sent_text_of(outcome: Outcome) -> str:
    """Return the text of a summary that is about to be stored as requests will hold it."""
    if format_version_of(outcome) < SENDS_FILES_VERSION:
        return outcome.text
    return with_files(
        outcome.text,
        read=outcome.files_read,
        modified=outcome.files_modified,
        deleted=outcome.files_deleted,
    )


def write_placeholder(branch: Branch, summary: SessionSummary, *, gap: Gap | None = None) -> None:
    """Write the row that marks where the summary stands: behind the last message it covers.

    `gap` is that place where the caller has read it in the same transaction.
    """
    insert_between(
        branch,
        after=summary.covers_through,
        gap=gap,
        draft=NewMessage(
            wire={"role": "assistant", "content": PLACEHOLDER_NOTICE},
            kind=Message.Kind.PLACEHOLDER,
            summary=summary.summary_text,
            metadata=summary.metadata
            | {
                "type": "session_summary",
                "summary_id": str(summary.pk),
                "keepLastN": summary.keep_last_n,
                "summary_timestamp": round(summary.created_at.timestamp() * 1000),
            },
        ),
    )

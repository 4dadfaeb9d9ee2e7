"""The summaries that a branch's requests carry, and what they take: tokens besides their texts, and
characters, as rules by characters count them.

The tokens of texts are stored with the summaries. Frames and abridged histories come back with each
request unchanged, so they are counted once for each distinct text. No message is read here
(docs/architecture.md#a-turn-costs-the-same-at-any-age).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from chatapp.context.assembly import text_tokens
from chatapp.llm.registry import ModelConfig
from chatapp.round_trips import Statement
from compaction.engine import carrying
from compaction.engine.carrying import chars_as_sent, counts_characters
from compaction.engine.parameters import Profile
from compaction.engine.protocols import SentSummary
from compaction.models import CompactionState, SessionSummary
from compaction.selectors import asked_written, sent_summaries

if TYPE_CHECKING:
    from chatapp.models import Branch


def summaries_to_send(
    branch: Branch, profile: Profile, *, through: int, written: list[Any] | None = None
) -> list[SessionSummary]:
    """Return the summaries up to a cursor that the profile sends, oldest first.

    In whatever rendering: the newest alone, or with those that it has not taken in. `written` is
    what asked_summaries found of them.
    """
    return sent_summaries(branch, profile.summary_limit, through=through, written=written)


def asked_summaries(
    branch: Branch, profile: Profile, *, through: int
) -> Statement[list[Any]] | None:
    """Return the read that summaries_to_send begins with; None where it is another one."""
    return asked_written(branch, profile.summary_limit, through=through)


def sent_form(row: SessionSummary) -> SentSummary:
    """Return a row's text and abridged history as requests hold them."""
    return SentSummary(text=row.sent_text, abridged=row.abridged)


def carried_tokens(profile: Profile, model: ModelConfig, summaries: Sequence[SentSummary]) -> int:
    """Return the tokens of a request's summaries besides their texts: frames and histories."""
    return carrying.carried_tokens(profile, summaries, partial(text_tokens, model))


def frame_tokens(profile: Profile, model: ModelConfig) -> int:
    """Return the tokens of what a summary is wrapped in when it is sent."""
    return carrying.frame_tokens(profile, partial(text_tokens, model))


def front_messages(
    profile: Profile, model: ModelConfig, *, prompts: int, summaries: Sequence[SentSummary]
) -> int:
    """Return how many messages stand before the conversation (carrying.front_messages)."""
    return carrying.front_messages(
        profile,
        prompts=prompts,
        summaries=len(summaries),
        is_single=model.single_leading_system,
    )


def chars_since_summary(state: CompactionState) -> int:
    """Return the characters behind a branch's cursor, the conversation's rules among them."""
    return max(0, state.branch.char_total - state.covered_chars)


def history_chars(
    state: CompactionState, profile: Profile, summaries: Callable[[], Sequence[SentSummary]]
) -> int:
    """Return the characters of the whole history as it is sent.

    That is what came since the last summary, and the summary itself as it is sent: a history begins
    with the summary of what was before. Pins before the cursor are the caller's to add. `summaries`
    returns those that are sent. It is asked where a rule by characters is in force alone: other
    profiles read nothing for it, and count what came since.
    """
    chars = chars_since_summary(state)
    if counts_characters(profile):
        chars += chars_as_sent(profile, summaries())
    return chars

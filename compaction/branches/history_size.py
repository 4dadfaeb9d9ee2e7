"""How many characters a branch's history has, as rules by characters count it.

That is what came since the last summary, and the summary itself as it is sent: a history begins
with the summary of what was before. Both are stored sums and texts that a request needs anyway; no
message is read for them (docs/architecture.md#a-turn-costs-the-same-at-any-age).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compaction.engine.parameters import Profile
from compaction.engine.protocols import Rendering, SentSummary
from compaction.engine.registry import RENDERINGS
from compaction.engine.rendering import FALLBACK_RENDERING, rendered
from compaction.models import CompactionState


def counts_characters(profile: Profile) -> bool:
    """Whether a rule of the profile looks at characters: before a request, or by the clock."""
    return any(
        (
            profile.trigger_on_history_size_chars,
            profile.trigger_on_history_size_chars_when_cache_expiring,
        )
    )


def chars_since_summary(state: CompactionState) -> int:
    """Return the characters behind a branch's cursor, the conversation's rules among them."""
    return max(0, state.branch.char_total - state.covered_chars)


def history_chars(
    state: CompactionState, profile: Profile, summaries: Callable[[], Sequence[SentSummary]]
) -> int:
    """Return the characters of the whole history as it is sent.

    `summaries` returns those that are sent. It is asked where a rule by characters is
    in force alone: other profiles read nothing for it, and count what came since.
    """
    chars = chars_since_summary(state)
    if counts_characters(profile):
        chars += chars_as_sent(profile, summaries())
    return chars


def chars_as_sent(profile: Profile, summaries: Sequence[SentSummary]) -> int:
    """Return the characters of summaries in the messages that carry them; 0 where there is none."""
    if not summaries:
        return 0
    try:
        return _chars_in(RENDERINGS.get(profile.rendering), summaries, profile)
    # What a rendering fails at is told where a request is put together.
    except Exception:
        return _chars_in(FALLBACK_RENDERING, summaries, profile)


def _chars_in(rendering: Rendering, summaries: Sequence[SentSummary], profile: Profile) -> int:
    messages = rendered(rendering, summaries, profile)
    return sum(len(str(message["content"])) for message in messages)

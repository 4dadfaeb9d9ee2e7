"""What carries summaries in a request, and how large it is: frames, and the histories in a node.

How large a text is in tokens, the caller says. A rendering of a plug-in may fail at anything; what
it makes is then measured in the built-in frame, in which its request goes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import Reason
from compaction.engine.protocols import Rendering, SentSummary
from compaction.engine.registry import RENDERINGS, UnknownNameError
from compaction.engine.rendering import (
    FALLBACK_RENDERING,
    history_in_node,
    makes_node,
    rendered,
)

Count = Callable[[str], int]
LEAST_STRETCH_FRAMES = 2
"""What has fewer tokens than so many frames is not summarised: the frame alone would take most of
what that saves. Rules that count messages, and no tokens, ask for one frame, and for none where it
is sent already."""
# However little it is: what a person asks for, what messages would fall out for, and what a refusal
# leaves as the only way.
_WHATEVER_IT_SAVES = frozenset(
    {
        Reason.MANUAL,
        Reason.FORCED,
        Reason.HARD_LIMIT,
        Reason.ARCHIVE,
        Reason.OVERFLOW,
        Reason.OVERFLOW_AGAIN,
    }
)
# Where a request would not fit otherwise, or messages are counted and not tokens, a summary that is
# brought up to date may be of less: its frame is sent already.
_BY_MESSAGES = frozenset({Reason.MESSAGE_WINDOW, Reason.MAXIMUM_AGE})
_PRESSING = _BY_MESSAGES | {Reason.WINDOW, Reason.PRECHECK, Reason.REST}


def least_stretch(reason: str, *, frame: int, is_first: bool) -> int:
    """Return the fewest tokens of messages that are worth a summary, for a run of that reason.

    `frame` is what a summary is wrapped in, `is_first` says that none is sent yet.
    """
    if reason in _WHATEVER_IT_SAVES or (reason in _PRESSING and not is_first):
        return 0
    return frame + 1 if reason in _BY_MESSAGES else LEAST_STRETCH_FRAMES * frame


def sends_node(profile: Profile) -> bool:
    """Whether the profile's rendering makes one node of its summaries."""
    try:
        return makes_node(RENDERINGS.get(profile.rendering))
    except UnknownNameError:
        # Such a profile counts for nothing; what does is told where it is read.
        return False


def carried_tokens(profile: Profile, summaries: Sequence[SentSummary], count: Count) -> int:
    """Return the tokens of a request's summaries besides their texts: frames and histories."""
    if not summaries:
        return 0
    frame = frame_tokens(profile, count)
    if not sends_node(profile):
        return len(summaries) * frame
    return frame + count(history_in_node(summaries))


def frame_tokens(profile: Profile, count: Count) -> int:
    """Return the tokens of what a summary is wrapped in when it is sent."""
    return sum(count(str(message["content"])) for message in _frames(profile, 1))


def front_messages(profile: Profile, *, prompts: int, summaries: int, is_single: bool) -> int:
    """Return how many messages stand before a request's conversation.

    `prompts` are its system messages besides those that carry summaries. All of them are one where
    the rendering merges them, and where the server takes one alone (`is_single`).
    """
    rendering, carriers = _carried_by(profile, summaries)
    system: int = prompts + sum(message["role"] == "system" for message in carriers)
    others = prompts + len(carriers) - system
    return others + (min(1, system) if is_single or rendering.merges_system else system)


def merges_system(profile: Profile) -> bool:
    """Whether the profile's rendering makes one of all system messages before a conversation."""
    try:
        return bool(RENDERINGS.get(profile.rendering).merges_system)
    except UnknownNameError:
        return False


def _frames(profile: Profile, summaries: int) -> Sequence[Any]:
    """Return the messages that carry so many summaries, without their texts."""
    return _carried_by(profile, summaries)[1]


def _carried_by(profile: Profile, summaries: int) -> tuple[Rendering, Sequence[Any]]:
    """Return what carries so many summaries, and the rendering that makes it."""
    try:
        rendering = RENDERINGS.get(profile.rendering)
        return rendering, _empty(rendering, profile, summaries) if summaries else ()
    # What a rendering fails at is told where a request is put together.
    except Exception:
        return FALLBACK_RENDERING, _empty(FALLBACK_RENDERING, profile, summaries)


def _empty(rendering: Rendering, profile: Profile, summaries: int) -> Sequence[Any]:
    if makes_node(rendering):
        return rendering.node([SentSummary(text="")] * summaries, profile)
    return rendering.messages([""] * summaries)


def chars_as_sent(profile: Profile, summaries: Sequence[SentSummary]) -> int:
    """Return the characters of summaries in the messages that carry them; 0 where there is none."""
    if not summaries:
        return 0
    try:
        return _chars_in(RENDERINGS.get(profile.rendering), summaries, profile)
    # What a rendering fails at is told where a request is put together.
    except Exception:
        return _chars_in(FALLBACK_RENDERING, summaries, profile)


def counts_characters(profile: Profile) -> bool:
    """Whether a rule of the profile looks at characters: before a request, or by the clock."""
    return any(
        (
            profile.trigger_on_history_size_chars,
            profile.trigger_on_history_size_chars_when_cache_expiring,
        )
    )


def _chars_in(rendering: Rendering, summaries: Sequence[SentSummary], profile: Profile) -> int:
    messages = rendered(rendering, summaries, profile)
    return sum(len(str(message["content"])) for message in messages)

"""What carries summaries in a request, and its tokens: the frame, and the histories in a node.

The tokens of texts are stored with the summaries. Frames and abridged histories come back with each
request unchanged, so they are counted once for each distinct text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from chatapp.context.assembly import text_tokens
from chatapp.llm.registry import ModelConfig
from compaction.engine.parameters import Profile
from compaction.engine.protocols import NodeRendering, Rendering, SentSummary
from compaction.engine.registry import RENDERINGS, UnknownNameError
from compaction.engine.rendering import FALLBACK_RENDERING, history_in_node, makes_node
from compaction.models import SessionSummary
from compaction.selectors import newest_that_holds_all, sent_summaries

if TYPE_CHECKING:
    from chatapp.models import Branch


def sends_node(profile: Profile) -> bool:
    """Whether the profile's rendering makes one node of the newest summary."""
    try:
        return makes_node(RENDERINGS.get(profile.rendering))
    except UnknownNameError:
        # Such a profile counts for nothing; what does is told where it is read.
        return False


def summaries_to_send(branch: Branch, profile: Profile, *, through: int) -> list[SessionSummary]:
    """Return the summaries up to a cursor that the profile sends, oldest first.

    A node holds the newest alone, which has taken in those before it.
    """
    sent = partial(sent_summaries, branch, through=through)
    if sends_node(profile):
        return newest_that_holds_all(sent)
    return sent(profile.summary_limit)


def sent_form(row: SessionSummary) -> SentSummary:
    """Return a row's text and abridged history as requests hold them."""
    return SentSummary(text=row.sent_text, abridged=row.abridged)


def carried_tokens(profile: Profile, model: ModelConfig, summaries: Sequence[SentSummary]) -> int:
    """Return the tokens of a request's summaries besides their texts: frames and histories."""
    if not summaries:
        return 0
    frame = frame_tokens(profile, model)
    if not sends_node(profile):
        return len(summaries) * frame
    return frame + text_tokens(model, history_in_node(summaries))


def frame_tokens(profile: Profile, model: ModelConfig) -> int:
    """Return the tokens of what a summary is wrapped in when it is sent."""
    try:
        return _tokens_of(RENDERINGS.get(profile.rendering), profile, model)
    # What a rendering fails at is told where a request is put together.
    except Exception:
        return _tokens_of(FALLBACK_RENDERING, profile, model)


def _tokens_of(rendering: Rendering, profile: Profile, model: ModelConfig) -> int:
    if isinstance(rendering, NodeRendering):
        frame = rendering.node([SentSummary(text="")], profile)
    else:
        frame = rendering.messages([""])
    return sum(text_tokens(model, str(message["content"])) for message in frame)

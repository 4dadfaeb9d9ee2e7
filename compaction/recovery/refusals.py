"""What a refusal says: which limit holds, and the sentence that a user reads at the end."""

from __future__ import annotations

from chatapp.context.assembly import Context
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.learned_limits import SMALLEST_WINDOW_TOKENS
from chatapp.models import Message
from compaction.branches.context_builder import question_in
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import behind_cursor
from compaction.recovery.too_large import cause_of

# What happened, without the advice: that depends on what was tried.
_HAPPENED = {
    ErrorKind.CONTEXT_OVERFLOW: "The request is larger than the model's context window.",
    ErrorKind.REQUEST_OVER_RATE: "The request holds more tokens than the model server allows in a "
    "minute, so waiting does not help.",
    ErrorKind.TOO_MANY_MESSAGES: "The conversation has more messages than the model server takes.",
    ErrorKind.BODY_TOO_LARGE: "The request has more bytes than the model server takes.",
}
_IN_TOKENS = {ErrorKind.CONTEXT_OVERFLOW, ErrorKind.REQUEST_OVER_RATE}


def window_of(error: ModelError) -> int | None:
    """Return the tokens that the server allows, where the error names them.

    A number that no window has was misread.
    """
    if error.kind not in _IN_TOKENS or (error.allowed or 0) < SMALLEST_WINDOW_TOKENS:
        return None
    return error.allowed


def sentence_for(
    error: ModelError, snapshot: BranchSnapshot, refused: Context, *, tried: str
) -> str:
    """Return what happened, what is too large and where it stands, and what to do."""
    allowed = window_of(error) or snapshot.model.context_window
    happened = _HAPPENED.get(error.kind, error.sentence)
    in_tokens = error.kind in _IN_TOKENS
    cause = cause_of(snapshot, refused, allowed=allowed) if in_tokens else None
    if cause is None:
        said = [happened, tried, _advice(error)]
    else:
        by_rate = error.kind is ErrorKind.REQUEST_OVER_RATE
        said = [happened, tried, cause.said, _advice(error) if by_rate else cause.advice]
    return " ".join(text for text in said if text)


def is_hopeless(error: ModelError, snapshot: BranchSnapshot, refused: Context) -> bool:
    """Whether the question alone is larger than the limit, so that no step could help."""
    allowed = window_of(error) or snapshot.model.context_window
    question = question_in(behind_cursor(snapshot).rows)
    return question is not None and _least_tokens(question, snapshot, refused) > allowed > 0


def _least_tokens(question: Message, snapshot: BranchSnapshot, refused: Context) -> float:
    """Return the tokens of a request with nothing but prompt, tools and question, framed."""
    account, prompts = refused.account, bool(snapshot.session.system_prompt)
    frames = snapshot.model.request_frames(prompts + 1)
    return (question.tokens + account.system + account.tools + frames) * snapshot.model.scale


def _advice(error: ModelError) -> str:
    """Return what to do where no part of the request stands out."""
    if error.kind is ErrorKind.REQUEST_OVER_RATE:
        return "Shorten the message, or have the limit per minute raised."
    if error.kind is ErrorKind.TOO_MANY_MESSAGES:
        return "Compact the session by hand, or start a new one."
    return (
        "Shorten the message or its attachments, compact the session by hand, or use a model with "
        "a larger window."
    )

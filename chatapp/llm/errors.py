"""What an error of a model server means for the turn: one classifier for every path.

Errors with a status, errors under status 200, errors inside a stream and answers that hide one all
become a ModelError here. error_parsing.py reads bodies and the numbers in them; error_classifier.py
judges them, and has the servers' words.
"""

from __future__ import annotations

from typing import Any

from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.llm.error_classifier import classify
from chatapp.llm.error_kinds import REACTIONS, SENTENCES, ErrorKind, Reaction
from chatapp.llm.error_parsing import numbers_of, read
from chatapp.llm.requests import Reply
from chatapp.llm.tokens import plausible
from chatapp.messages.wire import Cleaner

__all__ = [
    "ErrorKind",
    "ModelError",
    "Reaction",
    "amid_answer",
    "classify",
    "exceeds_window",
    "from_body",
    "silent_overflow",
    "truncates_silently",
]

MAX_DETAIL_CHARS = 2000
# An answer of nothing is an overflow when the prompt left less than this part of the window.
FULL_SHARE = 0.99
# A server that reports less than this share of our count left something out. Tokenizers differ
# from our count by less than that, and below the difference a request is too small to tell.
TRUNCATED_SHARE = 0.6
SMALLEST_MISSING_TOKENS = 1000
_CUT_AT_WINDOW = {"model_length", "model_context_window_exceeded"}
_NORMAL_ENDS = {AnswerEnd.WHOLE, AnswerEnd.TOOL_CALLS}


class ModelError(Exception):
    """A model call failed. `detail` is the server's own text, `partial` what had arrived.

    `observed` and `allowed` are what the error names, or None: tokens for an overflow or a rate
    limit, output tokens for an output limit, messages, characters or bytes for limits on those.
    `message_index` is the place in the request's list of the message that is meant, `param` the
    place in the request as the server writes it.
    """

    def __init__(
        self,
        kind: ErrorKind,
        detail: str = "",
        *,
        status: int | None = None,
        code: str = "",
        retry_after: float | None = None,
        observed: int | None = None,
        allowed: int | None = None,
        message_index: int | None = None,
        param: str = "",
    ) -> None:
        self.kind = kind
        # Stored and shown later, so it must be text that can be.
        self.detail = Cleaner().text(detail)[:MAX_DETAIL_CHARS]
        self.status = status
        self.code = Cleaner().text(code)
        self.retry_after = retry_after
        self.observed = plausible(observed)
        self.allowed = plausible(allowed)
        self.message_index = plausible(message_index)
        self.param = Cleaner().text(param)
        self.partial: Any = None
        super().__init__(f"{self.sentence} {self.detail}".strip())

    @property
    def sentence(self) -> str:
        """What happened, what it means and what to do, for people; without the server's text."""
        return SENTENCES[self.kind]

    @property
    def reaction(self) -> Reaction:
        """What can be done about it."""
        return REACTIONS.get(self.kind, Reaction.REPORT)

    @property
    def is_overflow(self) -> bool:
        """Whether sending less of the conversation would help."""
        return self.reaction is Reaction.RECOVERY

    @property
    def is_temporary(self) -> bool:
        """Whether waiting and sending the same again may help."""
        return self.reaction is Reaction.WAIT


def from_body(
    body: Any, *, status: int | None, fallback: str = "", retry_after: float | None = None
) -> ModelError:
    """Return the ModelError for an error body: an object with code, type, message, or a text.

    `fallback` is told to people where the body says nothing; it is not judged. `retry_after` are
    the seconds of the answer's header, which count more than those of the text.
    """
    said = read(body, status=status)
    kind = classify(said)
    numbers = numbers_of(kind, said)
    return ModelError(
        kind,
        said.text or fallback,
        status=status,
        code=said.code[:100],
        retry_after=said.retry_after if retry_after is None else retry_after,
        observed=numbers.observed,
        allowed=numbers.allowed,
        message_index=numbers.message_index,
        param=said.param,
    )


def from_words(body: Any) -> ModelError:
    """Return the ModelError for what came under status 200 and is no answer: a page, a sentence.

    What its words mean counts; where they mean nothing that is known, it is a bad answer.
    """
    error = from_body(body, status=200)
    if error.kind is not ErrorKind.REJECTED:
        return error
    return ModelError(
        ErrorKind.BAD_ANSWER, f"There is no answer in it. {error.detail}".strip(), status=200
    )


def amid_answer(error: ModelError) -> ModelError:
    """Return what an error means that came in the middle of an answer.

    Nothing was wrong with the request, or the answer would not have begun: one that does not say
    what else it is tells of a broken answer.
    """
    if error.kind not in (ErrorKind.REJECTED, ErrorKind.BAD_ANSWER):
        return error
    return ModelError(ErrorKind.BROKEN_ANSWER, error.detail, status=error.status, code=error.code)


def silent_overflow(reply: Reply, window: int) -> ModelError | None:
    """Return the overflow that an answer of nothing hides, or None.

    Such an answer says that the window ended it, or was cut at once by a prompt that fills the
    window, or follows a prompt that is larger than the window. An answer with text or calls is
    never one, and `window` 0 is one nobody knows.
    """
    if reply.text or reply.tool_calls or reply.refusal:
        return None
    prompt = _reported(reply, "prompt_tokens")
    cut_at_once = (
        end_of(reply.finish_reason) is AnswerEnd.CUT
        and not reply.reasoning
        and not _reported(reply, "completion_tokens")
        and window > 0
        and (prompt or 0) >= FULL_SHARE * window
    )
    at_window = reply.finish_reason.lower() in _CUT_AT_WINDOW
    if not (at_window or cut_at_once or exceeds_window(reply, window)):
        return None
    error = ModelError(
        ErrorKind.CONTEXT_OVERFLOW,
        "The server answered with nothing, because the request fills its window.",
        status=200,
        code=reply.finish_reason,
        observed=prompt,
    )
    error.partial = reply
    return error


def exceeds_window(reply: Reply, window: int) -> bool:
    """Whether a finished answer reports a prompt larger than the window.

    Cached tokens are a part of `prompt_tokens` and are not added. An answer that was cut off is no
    sign, and `window` 0 is one nobody knows.
    """
    prompt = _reported(reply, "prompt_tokens")
    if prompt is None or window <= 0 or end_of(reply.finish_reason) not in _NORMAL_ENDS:
        return False
    return prompt > window


def truncates_silently(reported: int | None, counted: int) -> bool:
    """Whether a server seems to have left out a part of a request without saying so.

    True where it reports less than 0.6 of our own count and at least 1 000 tokens are missing, so
    never for small requests. No report, or 0, says nothing.
    """
    if not reported or reported < 0:
        return False
    missing = counted - reported
    return reported < TRUNCATED_SHARE * counted and missing >= SMALLEST_MISSING_TOKENS


def _reported(reply: Reply, key: str) -> int | None:
    return plausible((reply.usage or {}).get(key))

"""What is changed about a turn's requests after a refusal that is not about tokens.

Each change is made to the request only; what is stored stays. All of them hold for the rest of the
turn, and each can be made a few times at most; attempts.py bounds the requests of a turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from chatapp.llm.adaptations import adaptation_for, adapted, lower_output, output_of
from chatapp.llm.error_classifier import refuses_continuations
from chatapp.llm.errors import ErrorKind, ModelError, Reaction
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.wires import arguments_of, message_at
from chatapp.messages.wire import REASONING_ITEMS, WireMessage, is_image, text_of

IMAGE_LEFT_OUT = "[An image was left out here, because the request was too large to send.]"

Messages = Sequence[WireMessage]
# shorten(message, characters) -> the message with its text cut, or unchanged
Shorten = Callable[[WireMessage, int], WireMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustments:
    """The changes so far. `cuts` maps a message's place in the conversation to its characters.

    `codes` are adaptations of the request's form (chatapp.llm.adaptations); `output_refused` says
    that `max_output` is what the server was asked for after it had refused the length of an answer,
    and not what the request left, or a rate.
    """

    max_output: int | None = None
    output_refused: bool = False
    images_left_out: int = 0
    codes: frozenset[str] = frozenset()
    stateless: bool = False
    without_reasoning: bool = False
    cuts: Mapping[str, int] = field(default_factory=dict)

    def apply(self, request: ModelRequest, model: ModelConfig, shorten: Shorten) -> ModelRequest:
        """Return the request with all changes made."""
        messages = list(request.messages)
        if self.cuts:
            messages = [
                shorten(message, self.cuts[place]) if place in self.cuts else message
                for message, place in zip(messages, request.places, strict=True)
            ]
        if self.images_left_out:
            messages = without_images(messages, self.images_left_out)
        if self.without_reasoning:
            messages = [_without_reasoning(message) for message in messages]
        limits = [n for n in (self.max_output, request.max_output) if n]
        changed = replace(
            request,
            messages=messages,
            max_output=min(limits) if limits else None,
            previous_response_id="" if self.stateless else request.previous_response_id,
            messages_on_server=0 if self.stateless else request.messages_on_server,
        )
        return adapted(changed, model, self.codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was changed: a code for programs, a sentence for people, and the changes so far."""

    code: str
    text: str
    adjustments: Adjustments


def changed(
    done: Adjustments, error: ModelError, request: ModelRequest, model: ModelConfig
) -> Change | None:
    """Return what to change after an error, or None where no change of this kind is left.

    `request` is the one that was refused.
    """
    found = _stateless(done, error, request)
    if found is not None:
        return found
    answer = _ANSWERS.get(error.reaction)
    return answer(done, error, request) if answer else _adapt(done, error, request, model)


# What may be wrong with how we go on from an answer that the server keeps.
_ABOUT_STATE = {
    ErrorKind.BROKEN_PAIRS,
    ErrorKind.PARTS_REFUSED,
    ErrorKind.REJECTED,
}


def _stateless(done: Adjustments, error: ModelError, request: ModelRequest) -> Change | None:
    """Send the whole history when going on from a kept answer was refused or is too large.

    What a server forgot, or what became too large in its memory, passes: the answer to the whole
    history is gone on from again. Where that one is not kept either, the server keeps none.
    """
    if not request.previous_response_id or done.stateless:
        return None
    lost = error.kind is ErrorKind.STATE_LOST
    too_large = error.reaction is Reaction.RECOVERY
    if error.kind not in _ABOUT_STATE and not (lost or too_large):
        return None
    passes = too_large or (lost and not refuses_continuations(error))
    if passes and not request.continues_whole:
        return Change(
            code="sent_whole",
            text="The server did not go on from its last answer; the whole history was sent.",
            adjustments=replace(done, stateless=True),
        )
    return Change(
        code="stateless",
        text="The server did not go on from its last answer; the whole history is sent from now "
        "on, in this session.",
        adjustments=replace(done, stateless=True),
    )


def _lower_output(done: Adjustments, error: ModelError, request: ModelRequest) -> Change | None:
    found = lower_output(error, request.max_output or 0)
    if found is None:
        return None
    return Change(
        code="output_lowered",
        text=found.text,
        adjustments=replace(done, max_output=output_of(found.code), output_refused=True),
    )


def _leave_images_out(done: Adjustments, error: ModelError, request: ModelRequest) -> Change | None:
    """Leave the older half of the images out, then all but those of the open question."""
    left = images_before_question(request.messages)
    if left == 0:
        return None
    # The request that was refused holds those that are left; earlier ones are placeholders already.
    more = math.ceil(left / 2) if done.images_left_out == 0 else left
    which = "oldest image was" if more == 1 else f"{more} oldest images were"
    return Change(
        code="images_left_out",
        text=f"The request had too many bytes; its {which} left out.",
        adjustments=replace(done, images_left_out=done.images_left_out + more),
    )


def _adapt(
    done: Adjustments, error: ModelError, request: ModelRequest, model: ModelConfig
) -> Change | None:
    """Change the request's form by the table of refusals."""
    if error.reaction is not Reaction.ADAPT:
        return None
    in_force = request.adaptations | done.codes
    found = adaptation_for(error, request, arguments_of(model, request), in_force)
    if found is None:
        return None
    return Change(
        code=found.code.partition(":")[0],
        text=found.text,
        adjustments=replace(done, codes=done.codes | {found.code}),
    )


def _leave_reasoning_out(
    done: Adjustments, error: ModelError, request: ModelRequest
) -> Change | None:
    holds_reasoning = any("reasoning_items" in message for message in request.messages)
    if done.without_reasoning or not holds_reasoning:
        return None
    return Change(
        code="reasoning_left_out",
        text="The server no longer knows its earlier reasoning; the history was sent without it.",
        adjustments=replace(done, without_reasoning=True),
    )


def _cut_message(done: Adjustments, error: ModelError, request: ModelRequest) -> Change | None:
    """Cut the tool result that is too long; other messages are the user's or the model's words."""
    if error.message_index is None:
        return None
    index = message_at(request, error.message_index)
    if index is None or request.messages[index]["role"] != "tool":
        return None
    place = request.places[index]
    # A server that names no number is asked with half of it, and half of that.
    limit = error.allowed or len(text_of(request.messages[index].get("content"))) // 2
    if not limit or not place or done.cuts.get(place, limit + 1) <= limit:
        return None
    return Change(
        code="message_cut",
        text=f"The tool result {place} is longer than the server takes; {limit:,} characters of "
        "it were sent.",
        adjustments=replace(done, cuts={**done.cuts, place: limit}),
    )


_ANSWERS = {
    Reaction.LOWER_OUTPUT: _lower_output,
    Reaction.DROP_IMAGES: _leave_images_out,
    Reaction.GO_STATELESS: _leave_reasoning_out,
    Reaction.CUT_MESSAGE: _cut_message,
}


def _without_reasoning(message: WireMessage) -> WireMessage:
    left = {name: value for name, value in message.items() if name != REASONING_ITEMS}
    return cast(WireMessage, left)


def _question_from(messages: Messages) -> int:
    """Return the index of the last user message, whose content is never touched."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return users[-1] if users else len(messages)


def images_before_question(messages: Messages) -> int:
    """Return how many images the messages hold besides those of the last user message."""
    last = _question_from(messages)
    return sum(
        is_image(part)
        for index, message in enumerate(messages)
        if index != last and isinstance(message.get("content"), list)
        for part in message["content"]
    )


def without_images(messages: Messages, count: int) -> list[WireMessage]:
    """Return the messages with the `count` oldest images as a sentence; the question keeps its."""
    last, left = _question_from(messages), count
    out: list[WireMessage] = []
    for index, message in enumerate(messages):
        content = message.get("content")
        if index == last or left <= 0 or not isinstance(content, list):
            out.append(message)
            continue
        parts = []
        for part in content:
            gone = is_image(part) and left > 0
            left -= gone
            parts.append({"type": "text", "text": IMAGE_LEFT_OUT} if gone else part)
        out.append({**message, "content": parts})
    return out

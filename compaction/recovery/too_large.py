"""What makes a request too large, where nothing is left to try: named, linked, with what helps.

The parts are looked at from the most certain to the likeliest: what alone does not fit, and then
the largest message that was sent. Sizes are those of the request that was refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from chatapp.context.assembly import Context
from chatapp.llm.tokens import count_message
from chatapp.models import Message
from chatapp.selectors import path_messages
from compaction.branches.context_builder import for_their_pin, question_in
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import behind_cursor

# A message of at least this share of the limit is what somebody can do something about.
LARGE_SHARE = 0.25
_ROLES = {
    Message.Role.USER: "a user's message",
    Message.Role.ASSISTANT: "an answer",
    Message.Role.TOOL: "a tool's result",
    Message.Role.SYSTEM: "a system message",
}
_ADVICE = {
    Message.Role.TOOL: "Have the tool answer with less, or use a model with a larger window.",
    Message.Role.USER: "Shorten the message, send it in pieces, or use a model with a larger "
    "window.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a request is too large: a sentence that names it, and one that says what helps."""

    said: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """What a request may take: `scale` are the server's tokens for one of ours."""

    allowed: int
    reserve: int
    scale: float

    def is_passed_by(self, tokens: int) -> bool:
        return tokens * self.scale + self.reserve > self.allowed > 0

    @property
    def words(self) -> str:
        return f"the limit is {self.allowed:,}, with room for the answer"


def cause_of(snapshot: BranchSnapshot, refused: Context, *, allowed: int) -> Cause | None:
    """Return what makes a refused request too large; None where no part of it stands out."""
    account = refused.account
    limit = _Limit(allowed=allowed, reserve=account.reserve, scale=snapshot.model.scale)
    model = snapshot.model
    frames = model.request_frames(bool(snapshot.session.system_prompt))
    front = account.system + account.tools + frames
    question = question_in(behind_cursor(snapshot).rows)
    if limit.is_passed_by(front):
        return Cause(
            said=f"The system prompt ({account.system:,} tokens) and the tools "
            f"({account.tools:,}) alone are too large; {limit.words}.",
            advice="Shorten the system prompt, or give the session fewer tools.",
        )
    asked = front
    if question is not None:
        asked += question.tokens + model.message_frame_tokens
    if question is not None and limit.is_passed_by(asked):
        return Cause(
            said=f"Message {question.place} alone has about {question.tokens:,} tokens "
            f"({address_of(question)}); {limit.words}.",
            advice=_ADVICE[Message.Role.USER],
        )
    pins = model.message_frame_tokens * len(for_their_pin(snapshot))
    if account.pinned and limit.is_passed_by(asked + account.pinned + pins):
        return Cause(
            said=f"Pinned messages take {account.pinned:,} tokens of every request; {limit.words}.",
            advice="Unpin some of them: the summaries tell of what they say.",
        )
    return _largest_message(snapshot, refused, limit)


def _largest_message(snapshot: BranchSnapshot, refused: Context, limit: _Limit) -> Cause | None:
    """Return the largest message that was sent, if it is large, as it was sent."""
    counter = snapshot.model.counter
    sizes = [
        (count_message(message, counter), place)
        for message, place in zip(refused.messages, refused.places, strict=False)
        if place
    ]
    tokens, place = max(sizes, default=(0, ""), key=lambda one: one[0])
    if tokens * limit.scale < LARGE_SHARE * limit.allowed:
        return None
    row = _row_at(snapshot, place)
    if row is None:
        return None
    kind = _ROLES[Message.Role(row.role)]
    return Cause(
        said=f"The largest part is message {place}, {kind} of about {tokens:,} tokens "
        f"({address_of(row)}); {limit.words}.",
        advice=_ADVICE.get(
            Message.Role(row.role),
            "Compact the session by hand, or use a model with a larger window.",
        ),
    )


def _row_at(snapshot: BranchSnapshot, place: str) -> Message | None:
    known: Sequence[Message] = [*behind_cursor(snapshot).rows, *snapshot.pinned]
    found = next((row for row in known if row.place == place), None)
    if found is not None:
        return found
    # Of what is covered only the question that a turn goes on from is sent.
    rows = path_messages(snapshot.branch, through=snapshot.state.cursor).order_by("-position")
    return next((row for row in rows[:1] if row.place == place), None)


def address_of(message: Message) -> str:
    """Return the address that shows a message to its owner."""
    return reverse("message-detail", args=[message.pk])


_ADDRESS = re.compile(r"/messages/([0-9a-f-]{36})/")


def message_named_in(sentence: str) -> UUID | None:
    """Return the message that a sentence of this module names, if it names one."""
    found = _ADDRESS.search(sentence)
    return UUID(found[1]) if found else None

"""One request put together: what it sends, and where its tokens go."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from chatapp.context.preview import NotShown
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, get_model
from chatapp.llm.tokens import ModelTokenCounter
from chatapp.messages.pairing import strict_with_sources
from chatapp.messages.wire import REASONING_ITEMS, WireMessage, as_sent, text_of
from chatapp.models import Message, Session

# Servers count some per cent more than we do. So much of what is counted stays free where a request
# fills the window, or it would be refused.
COUNT_MARGIN_SHARE, COUNT_MARGIN_TOKENS = 0.06, 16
# After a refusal of what fits by our count.
LARGE_MARGIN_SHARE = 0.12
# An answer is asked to have at least a sixteenth of the window, or so much: rather than to ask for
# one of a few words, a request is refused as too large, which makes room.
LEAST_ANSWER_SHARE, LEAST_ANSWER_TOKENS = 16, 1024


def without_margin(room: int, counted: int, *, share: float = COUNT_MARGIN_SHARE) -> int:
    """Return what of a window's room is asked for beside `counted` tokens; at least half of it."""
    margin = math.ceil(share * counted) + COUNT_MARGIN_TOKENS
    return room - max(0, min(margin, room // 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the tokens of one request go; `counter` says how they were counted.

    `pinned` is what is sent for its pin alone: what would be sent without it is `kept`. `frames`
    are what the server counts for the messages besides their words.
    `memories_left_out` are lines that were not sent, no tokens.
    """

    system: int = 0
    tools: int = 0
    memories: int = 0
    summaries: int = 0
    pinned: int = 0
    kept: int = 0
    pending: int = 0
    frames: int = 0
    reserve: int = 0
    window: int = 0
    counter: str = ""
    exact: bool = False
    tokens_per_count: float = 1.0
    memories_left_out: int = 0

    @property
    def used(self) -> int:
        """Tokens of the request itself."""
        front = self.system + self.tools + self.memories + self.summaries
        return front + self.pinned + self.kept + self.pending + self.frames

    @property
    def room(self) -> int:
        """Tokens that the request leaves of the window, as the server counts; below 0: too many."""
        return self.window - math.ceil(self.used * max(1.0, self.tokens_per_count))

    def answer_room(self, *, share: float = COUNT_MARGIN_SHARE) -> int:
        """Return the tokens that an answer may be asked to have: the room less a margin."""
        counted = math.ceil(self.used * max(1.0, self.tokens_per_count))
        return without_margin(self.room, counted, share=share)

    @property
    def least_answer(self) -> int:
        """Tokens below which an answer's room is not worth asking for."""
        return min(self.window // LEAST_ANSWER_SHARE, LEAST_ANSWER_TOKENS)

    @property
    def free(self) -> int:
        """Tokens that are left in the window besides the reserve; never below 0."""
        return max(0, self.room - self.reserve)

    def as_dict(self) -> dict[str, Any]:
        """Return the account for the API."""
        return asdict(self) | {"used": self.used, "free": self.free}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What one request sends. `facts` is the backend's own news about how it came about.

    `places` says for each message where it stands in the conversation; empty for what is no stored
    message. It never goes on the wire. Parts that are kept apart have no data here: their files are
    read for the request that is sent (turns/request.py). `model` is the model that it was put
    together for. `mark` is the backend's word for what it sends besides the newest messages, stored
    with the answer: a report of the answer's server is of just that.

    What is written down with the answer: `stored` are the conversation's messages as they are
    stored, by their places; `made_of` are the backend's words for what it chose (`profile`,
    `summaries`, `first`, `pins`, `cut`, `steps`: short texts, places as
    chatapp.answer_requests.write_parts writes them). `left_out` is told to everybody: {messages,
    first, last, tokens, why} of what the request goes without, or None. `not_shown` is what a
    preview of a long request leaves out although it is sent; the account counts it as kept.
    """

    messages: tuple[WireMessage, ...]
    account: Account
    places: tuple[str, ...] = ()
    run_id: str | None = None
    model: ModelConfig | None = None
    mark: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    origin: Any = field(default=None, compare=False, repr=False)
    stored: Mapping[str, WireMessage] = field(default_factory=dict, compare=False, repr=False)
    made_of: Mapping[str, str] = field(default_factory=dict, compare=False)
    left_out: Mapping[str, Any] | None = field(default=None, compare=False)
    not_shown: NotShown | None = field(default=None, compare=False)

    @property
    def asks_something(self) -> bool:
        """Whether a stored user message is among them: a summary alone asks nothing."""
        places = self.places or [True] * len(self.messages)
        return any(
            message["role"] == "user" and place
            for message, place in zip(self.messages, places, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPart:
    """The pieces of a request before they are put together; tokens are what was stored.

    `summaries` are the messages that carry them; with `merge_system` those that are system messages
    become one with the prompt.
    `shortened` maps the ids of kept messages to what is sent in their place. `pinned` are the ids
    of those kept messages that are sent for their pin alone. `memories` is a text about the owner
    that stands behind the prompt.
    """

    system: Sequence[Message] = ()
    memories: str = ""
    memory_tokens: int = 0
    memories_left_out: int = 0
    summaries: Sequence[WireMessage] = ()
    summary_tokens: int = 0
    merge_system: bool = False
    kept: Sequence[Message] = ()
    shortened: Mapping[UUID, Shortened] = field(default_factory=dict)
    pinned: Collection[UUID] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """Content that is sent in place of a message's own, about how many tokens it has."""

    content: Any
    tokens: int


def assemble(
    session: Session,
    part: HistoryPart,
    *,
    model: ModelConfig | None = None,
    reserve: int | None = None,
    run_id: str | None = None,
) -> Context:
    """Return the Context: prompt, memories, opening system messages, summaries, kept messages.

    The system prompt stays verbatim and first. A model with `single_leading_system` gets all that
    stands before the conversation as one message, in that order.
    """
    model = model or with_learned_limits(get_model(session.model))
    front = _front(session, part, model)
    pending_from = _pending_from(part.kept)
    places = [row.place for row in part.kept]
    known = [""] * len(front) + places
    wires = [_wire(row, session) for row in part.kept]
    kept = (_sent(row, wire, part) for row, wire in zip(part.kept, wires, strict=True))
    # What a message is told as depends on where it comes from, never on where a cut falls.
    sent = strict_with_sources([*front, *kept], front=len(front))
    pinned, tokens = _apart(part)
    return Context(
        messages=tuple(message for message, _ in sent),
        places=tuple("" if source is None else known[source] for _, source in sent),
        run_id=run_id,
        model=model,
        stored=dict(zip(places, wires, strict=True)),
        account=Account(
            system=text_tokens(model, session.system_prompt)
            + sum(row.tokens for row in part.system),
            tools=tools_tokens(model, session.tools),
            memories=part.memory_tokens,
            memories_left_out=part.memories_left_out,
            summaries=part.summary_tokens
            + sum(row.tokens for row in part.kept if row.carries_summary),
            pinned=pinned,
            kept=sum(tokens[:pending_from]),
            pending=sum(tokens[pending_from:]),
            frames=model.request_frames(len(front) + len(part.kept)),
            reserve=_reserve_of(model) if reserve is None else reserve,
            window=model.context_window,
            counter=model.counter.name,
            exact=model.counter.exact,
            tokens_per_count=model.tokens_per_count,
        ),
    )


def showing_part(context: Context, not_shown: NotShown | None) -> Context:
    """Return a context of the newest messages with what it leaves out counted as kept."""
    if not_shown is None:
        return context
    account, model = context.account, context.model
    frames = model.message_frame_tokens * not_shown.messages if model else 0
    account = replace(account, kept=account.kept + not_shown.tokens, frames=account.frames + frames)
    return replace(context, account=account, not_shown=not_shown)


def _reserve_of(model: ModelConfig) -> int:
    """Return the room of the answer, never more than half of the window."""
    return min(model.max_output, model.context_window // 2)


def _front(session: Session, part: HistoryPart, model: ModelConfig) -> list[WireMessage]:
    """Return what stands before the conversation: prompt, memories, rules, summaries."""
    prompts = [text for text in (session.system_prompt, part.memories) if text]
    front: list[WireMessage] = [{"role": "system", "content": text} for text in prompts]
    front += [row.stored_wire() for row in part.system]
    front += [message for message in part.summaries if message["role"] == "system"]
    if (model.single_leading_system or part.merge_system) and len(front) > 1:
        front = [{"role": "system", "content": "\n\n".join(text_of(m["content"]) for m in front)}]
    return [*front, *(message for message in part.summaries if message["role"] != "system")]


def _sent(row: Message, wire: WireMessage, part: HistoryPart) -> WireMessage:
    """Return a kept message as it is sent."""
    if row.pk in part.shortened:
        return as_sent({**wire, "content": part.shortened[row.pk].content})
    return wire


def _wire(row: Message, session: Session) -> WireMessage:
    """Return a kept message without the files in its texts, with what its server gets back."""
    wire = as_sent(row.stored_wire())
    if session.api == Session.Api.RESPONSES and REASONING_ITEMS in row.metadata:
        wire[REASONING_ITEMS] = row.metadata[REASONING_ITEMS]
    return wire


def _apart(part: HistoryPart) -> tuple[int, list[int]]:
    """Return the tokens of what is sent for its pin, and for each kept message those of others."""
    pinned, tokens = 0, []
    for row in part.kept:
        own = 0 if row.carries_summary else _tokens(row, part)
        is_for_pin = row.pk in part.pinned
        pinned += own if is_for_pin else 0
        tokens.append(0 if is_for_pin else own)
    return pinned, tokens


def _tokens(row: Message, part: HistoryPart) -> int:
    return part.shortened[row.pk].tokens if row.pk in part.shortened else row.tokens


def _pending_from(kept: Sequence[Message]) -> int:
    """Return where the unanswered part starts: behind the last answer that asks for no tool."""
    for index in range(len(kept) - 1, -1, -1):
        if kept[index].role == Message.Role.ASSISTANT and not kept[index].tool_calls:
            return index + 1
    return 0


@lru_cache(maxsize=256)
def _count(counter: Hashable, text: str) -> int:
    return cast(ModelTokenCounter, counter).count(text)


def text_tokens(model: ModelConfig, text: str) -> int:
    """Return the tokens of a text that comes back with every request; counted once."""
    return _count(cast(Hashable, model.counter), text) if text else 0


def tools_tokens(model: ModelConfig, tools: Sequence[Any]) -> int:
    """Return what the tool definitions cost; counted once for each distinct text."""
    return text_tokens(model, json.dumps(tools, ensure_ascii=False)) if tools else 0

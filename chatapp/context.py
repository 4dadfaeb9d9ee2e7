"""What is sent: the contract of a context backend, and the backend that sends everything.

CHATAPP["CONTEXT"] names the backend ({"BACKEND": dotted path, "OPTIONS": {…}}). What passes here is
plain OpenAI-style message dicts and frozen accounts, never rows of another app.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from django.core.checks import CheckMessage
from django.core.signals import setting_changed
from django.utils.functional import LazyObject, empty
from django.utils.module_loading import import_string

from chatapp.blocks import texts_of, with_texts
from chatapp.conf import chatapp_settings
from chatapp.lessons import taught
from chatapp.llm.errors import ModelError
from chatapp.llm.models import ModelConfig, get_model
from chatapp.llm.tokens import TokenCounter
from chatapp.models import Message, Session
from chatapp.pairing import strict_with_sources
from chatapp.selectors import path_messages
from chatapp.wire import REASONING_ITEMS, text_of

logger = logging.getLogger(__name__)

# emit(name, payload): news for whoever watches the turn; a backend's own names pass unchanged.
Emit = Callable[[str, dict[str, Any]], None]


def silent(name: str, payload: dict[str, Any]) -> None:
    """Tell nobody: the default listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the tokens of one request go; `counter` says how they were counted."""

    system: int = 0
    tools: int = 0
    summaries: int = 0
    kept: int = 0
    pending: int = 0
    reserve: int = 0
    window: int = 0
    counter: str = ""
    exact: bool = False
    tokens_per_count: float = 1.0

    @property
    def used(self) -> int:
        """Tokens of the request itself."""
        return self.system + self.tools + self.summaries + self.kept + self.pending

    @property
    def room(self) -> int:
        """Tokens that the request leaves of the window, as the server counts; below 0: too many."""
        return self.window - math.ceil(self.used * max(1.0, self.tokens_per_count))

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
    message. It never goes on the wire. `model` is the model that it was put together for.
    """

    messages: tuple[dict[str, Any], ...]
    account: Account
    places: tuple[str, ...] = ()
    run_id: str | None = None
    model: ModelConfig | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def asks_something(self) -> bool:
        """Whether a stored user message is among them: a summary alone asks nothing."""
        places = self.places or [True] * len(self.messages)
        return any(
            message["role"] == "user" and place
            for message, place in zip(self.messages, places, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The answer to an overflow: `context` to try again with, or a sentence for the user.

    `memory` is the backend's own: it comes back with the next overflow of the same turn.
    """

    context: Context | None = None
    error: str = ""
    memory: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """How a turn ended: the stored answer's id and the usage the server reported."""

    message_id: str | None
    usage: dict[str, Any] | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPart:
    """The pieces of a request before they are put together; tokens are what was stored.

    `summary_role` is `system` or `user`; with `merge_system` prompt and summaries are one message.
    `shortened` maps the ids of kept messages to what is sent in their place.
    """

    system: Sequence[Message] = ()
    summaries: Sequence[str] = ()
    summary_tokens: int = 0
    summary_role: str = "system"
    merge_system: bool = False
    kept: Sequence[Message] = ()
    shortened: Mapping[UUID, Shortened] = field(default_factory=dict)


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
    """Return the Context: system prompt, opening system messages, summaries, kept messages.

    The system prompt stays verbatim and first. A model with `single_leading_system` gets prompt
    and summaries as one message, in that order (B07).
    """
    model = model or taught(get_model(session.model))
    front = _front(session, part, model)
    pending_from = _pending_from(part.kept)
    known = [""] * len(front) + [row.place for row in part.kept]
    sent = strict_with_sources([*front, *(_sent(row, session, part) for row in part.kept)])
    tokens = [_tokens(row, part) for row in part.kept]
    return Context(
        messages=tuple(message for message, _ in sent),
        places=tuple("" if source is None else known[source] for _, source in sent),
        run_id=run_id,
        model=model,
        account=Account(
            system=text_tokens(model, session.system_prompt)
            + sum(row.tokens for row in part.system),
            tools=tools_tokens(model, session.tools),
            summaries=part.summary_tokens,
            kept=sum(tokens[:pending_from]),
            pending=sum(tokens[pending_from:]),
            reserve=model.max_output if reserve is None else max(reserve, model.max_output),
            window=model.context_window,
            counter=model.counter.name,
            exact=model.counter.exact,
            tokens_per_count=model.tokens_per_count,
        ),
    )


def _front(session: Session, part: HistoryPart, model: ModelConfig) -> list[dict[str, Any]]:
    """Return what stands before the conversation: prompt, rules, summaries."""
    prompts = [session.system_prompt] if session.system_prompt else []
    front: list[dict[str, Any]] = [{"role": "system", "content": text} for text in prompts]
    front += [row.wire() for row in part.system]
    summaries = [{"role": part.summary_role, "content": text} for text in part.summaries]
    if part.summary_role == "system":
        front, summaries = [*front, *summaries], []
    if (model.single_leading_system or part.merge_system) and len(front) > 1:
        front = [{"role": "system", "content": "\n\n".join(text_of(m["content"]) for m in front)}]
    return [*front, *summaries]


def _sent(row: Message, session: Session, part: HistoryPart) -> dict[str, Any]:
    """Return a kept message as it is sent."""
    wire = row.wire()
    if row.pk in part.shortened:
        wire["content"] = part.shortened[row.pk].content
    if session.api == Session.Api.RESPONSES and REASONING_ITEMS in row.metadata:
        wire[REASONING_ITEMS] = row.metadata[REASONING_ITEMS]
    return wire


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
    return cast(TokenCounter, counter).count(text)


def text_tokens(model: ModelConfig, text: str) -> int:
    """Return the tokens of a text that comes back with every request; counted once."""
    return _count(cast(Hashable, model.counter), text) if text else 0


def tools_tokens(model: ModelConfig, tools: Sequence[Any]) -> int:
    """Return what the tool definitions cost; counted once for each distinct text."""
    return text_tokens(model, json.dumps(tools, ensure_ascii=False)) if tools else 0


class BaseContextBackend:
    """The seam: every method has a working default, so that the chat runs with none of it."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def prepare(
        self, session: Session, pending: Sequence[dict[str, Any]], *, emit: Emit = silent
    ) -> Context:
        """Return what the next request sends; `pending` is already stored at the branch's end."""
        return self.preview(session)

    def preview(self, session: Session) -> Context:
        """Return what a request would send as things stand; changes nothing."""
        rows = list(path_messages(session.branch))
        return assemble(
            session,
            HistoryPart(
                system=[row for row in rows if row.is_rule],
                kept=[row for row in rows if not row.is_rule],
            ),
        )

    def recover(
        self,
        session: Session,
        error: ModelError,
        previous: Recovery | None,
        *,
        refused: Context,
        emit: Emit = silent,
    ) -> Recovery:
        """Answer a context overflow: a smaller Context to try, or a readable sentence.

        `previous` is what it returned last in this turn, `refused` the Context that was too large.
        """
        return Recovery(
            error=f"The conversation is larger than the model's context window "
            f"({get_model(session.model).context_window:,} tokens). "
            "Start a new session, or use a model with a larger window."
        )

    def to_store(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a tool's message as it is to be stored; what it loses is kept beside it."""
        return message

    def shorten(self, message: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return a tool's message with at most `limit` characters of text, and a word about it."""
        texts = texts_of(message.get("content"))
        content = with_texts(message.get("content"), [text[:limit] for text in texts])
        return {**message, "content": content}

    def message_stored(self, session: Session, message: Message) -> None:
        """Hear of a message that was stored outside a turn, or of an answer; after the commit."""

    def turn_finished(self, session: Session, outcome: TurnOutcome) -> None:
        """Hear that a turn ended and what it used."""

    def branch_switched(self, session: Session, old: Any, new: Any) -> None:
        """Hear that another branch is active now."""

    def describe(self, session: Session) -> dict[str, Any]:
        """Return the state of the context for API and pages."""
        return {}

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the backend's options."""
        return []


class FullHistoryBackend(BaseContextBackend):
    """Sends everything that was stored."""


class _ContextBackend(LazyObject):  # type: ignore[type-arg]  # generic in the stubs only
    def _setup(self) -> None:
        setting = chatapp_settings.context
        self._wrapped = import_string(setting["BACKEND"])(**setting.get("OPTIONS", {}))

    def forget(self) -> None:
        """Make the backend anew at the next use."""
        self._wrapped = empty


context_backend: Any = _ContextBackend()


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "CHATAPP":
        context_backend.forget()


def tell(hear: Callable[..., None], *news: Any) -> None:
    """Call a listener of the backend. A failure is logged: what it hears of has happened."""
    try:
        hear(*news)
    except Exception:
        logger.exception("The context backend could not take in what was stored.")


setting_changed.connect(_reload, dispatch_uid="chatapp.context")

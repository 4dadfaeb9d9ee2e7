"""What is asked of a model and what comes back, whichever wire carries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from chatapp.messages.vendor import CALL_KEYS, own_fields
from chatapp.messages.wire import WireMessage, is_blank


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request. `deadline` is a time.monotonic() value: nothing waits beyond it.

    `cancelled` is asked between pieces of a stream and between retries. `places` are those of
    context.Context, for a model that quotes; servers never see them.

    `messages` are in chat form whichever wire carries them. These are for the Responses wire:
    `stores` allows the server to keep the answer; `previous_response_id` names a kept one that
    holds the first `messages_on_server` messages, which are not sent again, and is itself the
    answer to a whole history that had to be sent anew where `continues_whole`; `plain_text` sends
    contents as texts for servers that refuse typed parts.

    `adaptations` are codes of what is changed for this model and conversation
    (messages.outgoing, llm.adaptations). `effort` is how much a model is asked to reason; empty
    leaves it to the model. With `forbids_tools` the tools are told and none may be called.
    """

    messages: Sequence[WireMessage]
    tools: Sequence[dict[str, Any]] = ()
    places: Sequence[str] = ()
    max_output: int | None = None
    temperature: float | None = None
    stream: bool = False
    deadline: float | None = None
    cancelled: Callable[[], bool] = field(default=lambda: False)
    api: str = "chat"
    previous_response_id: str = ""
    messages_on_server: int = 0
    continues_whole: bool = False
    stores: bool = False
    plain_text: bool = False
    adaptations: frozenset[str] = frozenset()
    effort: str = ""
    forbids_tools: bool = False

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools that it declares, in the form of either wire."""
        told = (tool.get("function") or tool for tool in self.tools)
        return frozenset(str(one.get("name")) for one in told if isinstance(one, Mapping))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer. `usage` is the server's own, in Chat Completions form, or None.

    `text` holds no thoughts and is never blank: nothing is None. `finish_reason` is the server's
    own word (see answer_ends.py). `reasoning_items` are the Responses API's, as they came: an
    assistant message takes them back under the key of that name. `fields` of the message, and
    `about` the choice and the body, are the server's own (see chatapp/messages/vendor.py);
    `thoughts_in` is the field that its thoughts came in, `left_out` names what was too large to be
    kept.
    """

    text: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    reasoning: str = ""
    refusal: str = ""
    finish_reason: str = "stop"
    usage: dict[str, Any] | None = None
    response_id: str = ""
    model: str = ""
    reasoning_items: tuple[dict[str, Any], ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    thoughts_in: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing and asks for nothing."""
        return is_blank(self.text) and not self.tool_calls and is_blank(self.refusal)

    @property
    def has_own_fields(self) -> bool:
        """Whether the server put anything beside it that it may want back."""
        wants_thoughts = bool(self.thoughts_in and self.tool_calls)
        in_calls = any(own_fields(call, CALL_KEYS) for call in self.tool_calls)
        return bool(self.fields or self.about or self.reasoning_items or wants_thoughts or in_calls)


# Called with ("delta", {"text": …}), ("reasoning", {"text": …}), ("reset", {"code": …}) where
# deltas turn out to be no text, and ("tool_call", {"index": …, "id": …, "name": …, …}).
OnEvent = Callable[[str, dict[str, Any]], None]


def ignore_event(name: str, payload: dict[str, Any]) -> None:
    """Do nothing with an event: the default where nobody listens."""


class ChatModel(Protocol):
    """A model: made with its ModelConfig, answers one request or raises llm.errors.ModelError."""

    def complete(self, request: ModelRequest, on_event: OnEvent = ignore_event) -> Reply:
        """Return the answer, telling `on_event` of its pieces where the request is streamed."""
        ...

"""The two wire formats under one interface: Chat Completions and Responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from chatapp.llm import chat_wire, responses_wire
from chatapp.llm.errors import ModelError
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply
from chatapp.messages.wire import WireMessage


class Wire(Protocol):
    """What the module of a wire format offers."""

    def arguments_of(self, config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
        """Return the request as keyword arguments of the SDK: the body that is sent."""
        ...

    def message_at(self, request: ModelRequest, index: int) -> int | None:
        """Return the index in `request.messages` of what a server's error numbers `index`."""
        ...

    def send(self, client: Any, arguments: dict[str, Any]) -> Any:
        """Return what the SDK's client answers: an answer or a stream."""
        ...

    def reply_of(self, answer: Any, /) -> Reply:
        """Return a whole answer as a Reply; raise ModelError for what is none."""
        ...

    def read_stream(
        self,
        pieces: Iterable[Any],
        /,
        request: ModelRequest,
        on_event: OnEvent,
        as_model_error: Callable[[Exception], ModelError],
    ) -> Reply:
        """Return the Reply of a stream, telling `on_event` of its pieces."""
        ...


_WIRES: Mapping[str, Wire] = {"chat": chat_wire, "responses": responses_wire}


def wire_of(request: ModelRequest) -> Wire:
    """Return the wire that a request asks for by its `api`."""
    return _WIRES[request.api]


def arguments_of(config: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    """Return the body that a request is sent as, on the wire it asks for."""
    return wire_of(request).arguments_of(config, request)


def outgoing_of(config: ModelConfig, request: ModelRequest) -> list[tuple[WireMessage, int | None]]:
    """Return a request's messages in the form in which they go out, in chat form on both wires.

    Each comes with the index in `request.messages` that it was made of.
    """
    return chat_wire.outgoing_of(config, request)


def message_at(request: ModelRequest, index: int) -> int | None:
    """Return the index in `request.messages` of what a server's error numbers `index`."""
    return wire_of(request).message_at(request, index)

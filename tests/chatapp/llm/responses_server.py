"""Asking the scripted server over the Responses wire, for the tests of that wire."""

from __future__ import annotations

import time

from chatapp.llm.errors import ModelError
from chatapp.llm.openai_client import OpenAIModel
from chatapp.llm.registry import all_models
from chatapp.llm.requests import ModelRequest, Reply
from tests.fakes.model_server import ModelServer

HELLO = {"role": "user", "content": "hello"}


class Asker:
    """Callable: asks a server that plays the replies; keeps what it was sent and what was told."""

    def __init__(self, use_models) -> None:
        self._use_models = use_models
        self.events: list[tuple[str, dict]] = []
        self.server = ModelServer()

    def __call__(self, *replies: dict, deadline: float = 20, **request) -> Reply | ModelError:
        script = [
            {"when": {"call": number}, "reply": reply} for number, reply in enumerate(replies, 1)
        ]
        with ModelServer(script) as self.server:
            self._use_models(self.server.models())
            return self.ask(deadline=deadline, **request)

    def ask(self, *, deadline: float, **request) -> Reply | ModelError:
        arguments = {"messages": [HELLO], "api": "responses", **request}
        try:
            return OpenAIModel(all_models()["default"]).complete(
                ModelRequest(deadline=time.monotonic() + deadline, **arguments),
                lambda name, payload: self.events.append((name, payload)),
            )
        except ModelError as error:
            return error

    @property
    def told_text(self) -> str:
        """The text that a client saw come in."""
        return "".join(payload["text"] for name, payload in self.events if name == "delta")

    @property
    def told_calls(self) -> dict[int, tuple[str, str, str]]:
        """The calls that a client saw come in: {index: (id, name, arguments)}."""
        calls: dict[int, tuple[str, str, str]] = {}
        for name, payload in self.events:
            if name == "tool_call":
                before = calls.get(payload["index"], ("", "", ""))[2]
                arguments = before + payload["arguments_delta"]
                calls[payload["index"]] = (payload["id"], payload["name"], arguments)
        return calls

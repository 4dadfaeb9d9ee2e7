"""An answer of a model put together from pieces in the order in which they were said.

Where results stand inside an answer (tools that the server ran, the steps of a chat widget), what
follows a result is a message of its own: call, result, text, as Chat Completions have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chatapp.formats.reading import Wire, joined, tool_call
from chatapp.formats.records import ImportedMessage
from chatapp.messages.vendor import kept_of_file, merged
from chatapp.messages.wire import VENDOR, VENDOR_LEFT_OUT

MAX_SIGNED_CHARS = 200_000
"""Signatures of one message's thinking; more are not kept."""

SIGNED_THINKING = "signed_thinking"
"""Key of `metadata`: signatures and encrypted thinking as the source had them. They are never sent:
a signature holds only before the server that made it, behind the very messages it was made for."""


@dataclass(slots=True)
class _AnswerStep:
    texts: list[str] = field(default_factory=list)
    parts: list[Wire] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    signed: list[Wire] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    calls: list[Wire] = field(default_factory=list)
    results: list[ImportedMessage] = field(default_factory=list)

    @property
    def says_something(self) -> bool:
        return bool(self.texts or self.parts or self.thoughts or self.calls)


class AnswerBuilder:
    """Takes the pieces one by one and gives the messages in the end (`finished`)."""

    def __init__(self) -> None:
        self._steps = [_AnswerStep()]

    @property
    def _step(self) -> _AnswerStep:
        return self._steps[-1]

    def next_step(self) -> None:
        """Begin a new message, if results stand since the last one began."""
        if self._step.results:
            self._steps.append(_AnswerStep())

    def think(self, text: str, signed: Wire | None = None) -> None:
        """Take reasoning, with what the source needs to have it back."""
        self.next_step()
        if text:
            self._step.thoughts.append(text)
        if signed:
            self.sign(signed)

    def sign(self, signed: Wire) -> None:
        """Take a signature of what was taken last."""
        self._step.signed.append(signed)

    def note(self, name: str, value: Any) -> None:
        """Take what the source says about what was taken last: citations, annotations."""
        if value:
            self._step.about[name] = merged(self._step.about.get(name), value, name)

    def say(self, text: str) -> None:
        """Take words of the answer."""
        self.next_step()
        if text:
            self._step.texts.append(text)

    def show(self, part: Wire) -> None:
        """Take an image or a file of the answer."""
        self.next_step()
        self._step.parts.append(part)

    def call(self, *, call_id: Any, name: Any, arguments: Any) -> None:
        """Take a call; raise DamagedError for one without a name."""
        self._step.calls.append(tool_call(call_id=call_id, name=name, arguments=arguments))

    def result(self, wire: Wire, metadata: Mapping[str, Any]) -> None:
        """Take what a tool returned."""
        message = ImportedMessage(key="", parent=None, wire=wire, metadata=dict(metadata))
        self._step.results.append(message)

    def finished(
        self,
        *,
        created_at: datetime | None = None,
        usage: dict[str, Any] | None = None,
        finish_reason: str = "",
    ) -> list[ImportedMessage]:
        """Return the messages; usage and reason of the end belong to the last of the model's."""
        messages: list[ImportedMessage] = []
        steps = [step for step in self._steps if step.says_something or step.results]
        for step in steps:
            if step.says_something:
                messages.append(_message(step))
            messages += step.results
        if created_at:
            messages = [message.changed(created_at=created_at) for message in messages]
        answers = [n for n, message in enumerate(messages) if message.wire["role"] == "assistant"]
        if answers and (usage or finish_reason):
            last = messages[answers[-1]]
            messages[answers[-1]] = last.changed(usage=usage, finish_reason=finish_reason)
        return messages


def _message(step: _AnswerStep) -> ImportedMessage:
    text = joined(step.texts)
    content: Any = text or (None if step.calls else "")
    if step.parts:
        content = [*([{"type": "text", "text": text}] if text else []), *step.parts]
    wire: Wire = {"role": "assistant", "content": content}
    if step.calls:
        wire["tool_calls"] = step.calls
    about = kept_of_file(step.about)
    if about.vendor:
        wire[VENDOR] = about.vendor
    size = sum(len(str(value)) for block in step.signed for value in block.values())
    keeps = step.signed and size <= MAX_SIGNED_CHARS
    return ImportedMessage(
        key="",
        parent=None,
        wire=wire,
        reasoning=joined(step.thoughts),
        metadata={
            **({SIGNED_THINKING: step.signed} if keeps else {}),
            **({VENDOR_LEFT_OUT: list(about.left_out)} if about.left_out else {}),
        },
    )


def chained(messages: Sequence[ImportedMessage]) -> tuple[ImportedMessage, ...]:
    """Return the messages as one line, with keys by their numbers from 1."""
    return tuple(
        message.changed(key=str(number), parent=str(number - 1) if number > 1 else None)
        for number, message in enumerate(messages, start=1)
    )

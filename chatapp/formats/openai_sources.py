"""Where a file holds OpenAI chat messages: lists, objects, one a line, logs of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from chatapp.formats.exchanges import Dialect, body_in, exchange_in, response_in, time_of
from chatapp.formats.file_records import Record, derived, items_as_records, values_of
from chatapp.formats.openai_messages import is_foreign, is_message
from chatapp.formats.reading import Document, Wire
from chatapp.formats.records import Problem
from chatapp.formats.unread import is_llama_web

MESSAGE_LISTS = ("messages", "traj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The record of an object that holds a conversation, or of the list of its messages.

    `numbers` are the lines of its messages; None if they all stand on that of the record.
    """

    record: Record
    numbers: Sequence[int] | None = None
    is_logged: bool = False

    @property
    def line(self) -> int:
        """The line (or item number) it starts on."""
        return self.record.line

    @property
    def value(self) -> Wire:
        """The object that holds the conversation."""
        value = self.record.value
        return {"messages": value} if isinstance(value, list) else cast(Wire, value)


def message_list(value: Wire) -> list[Any] | None:
    """The list that holds the messages, wherever the container keeps it."""
    lists = (value.get(key) for key in MESSAGE_LISTS)
    return next((found for found in lists if isinstance(found, list)), None)


def _is_completion(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("choices"), list)


LOGGED = Dialect(key="messages", is_message=is_message, is_response=_is_completion)


def _logged(value: Any) -> Wire | None:
    """The request in an object that holds one beside its response, with that inside it."""
    if not isinstance(value, dict) or message_list(value) is not None:
        return None
    exchange = exchange_in(value, LOGGED)
    if exchange is None or not _is_conversation(exchange.request):
        return None
    answered = exchange.response or value.get("response")
    time = time_of(exchange)
    known = {"response": answered, "created_at": time.isoformat() if time else None}
    return {**exchange.request, **{key: item for key, item in known.items() if item}}


def is_readable(value: Any) -> bool:
    """Whether a value holds messages in any of the known containers."""
    if isinstance(value, list):
        return any(map(_is_readable_item, value))
    return _is_readable_item(value)


def _is_readable_item(value: Any) -> bool:
    return is_message(value) or _is_conversation(value) or _logged(value) is not None


def _is_conversation(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(is_message, value)) and not any(map(is_foreign, value))
    if not isinstance(value, dict) or isinstance(value.get("history"), dict):
        return False  # with a history object the flat list is Open WebUI's copy of its tree
    if is_llama_web(value):
        return False  # its list is a tree: several answers to one question would follow each other
    messages = message_list(value)
    return messages == [] or _is_conversation(messages)


def sources_of(document: Document, problems: list[Problem]) -> list[Source]:
    """Return the conversations of a file; what holds none is added to the problems."""
    if document.is_lines:
        return _sources_of_lines(document, problems)
    value = document.records[0].value
    if is_message(value):
        return [_numbered([value])]
    if _is_conversation(value):
        return [_numbered(value)]
    sources = []
    for item in items_as_records(value if isinstance(value, list) else [value]):
        if _is_conversation(item.value):
            sources.append(Source(record=item))
        elif _logged(item.value) is not None:
            sources.append(Source(record=derived(item, _logged), is_logged=True))
        else:
            problems.append(_holds_none(item.line, f"Item {item.line}"))
    return sources


def _sources_of_lines(document: Document, problems: list[Problem]) -> list[Source]:
    sources: list[Source] = []
    loose: list[Record] = []
    for record in document.records:
        if _is_conversation(record.value):
            sources += _gathered(loose)
            sources.append(Source(record=record))
        elif isinstance(record.value, dict) and "role" in record.value:
            loose.append(record)
        elif _logged(record.value) is not None:
            sources += _gathered(loose)
            sources.append(Source(record=derived(record, _logged), is_logged=True))
        elif sources and not loose and _completes(sources[-1], record.value):
            answered = derived(sources[-1].record, partial(_completed, record))
            sources[-1] = replace(sources[-1], record=answered, is_logged=True)
        else:
            problems.append(_holds_none(record.line, "The line"))
    return sources + _gathered(loose)


def _completes(source: Source, value: Any) -> bool:
    """Whether a line holds the response to the request that a log has on the line before it."""
    has_one = bool(source.numbers) or "response" in source.value
    return not has_one and _response(value) is not None


def _response(value: Any) -> Any:
    return response_in(value, LOGGED) or body_in(value, LOGGED.is_response)


def _completed(answer: Record, request: Any) -> Wire:
    """The request of a log with its response from the next line."""
    request = {"messages": request} if isinstance(request, list) else request
    return {**request, "response": _response(answer.value)}


def _gathered(loose: list[Record]) -> list[Source]:
    """One conversation from lines that hold one message each; empties the list."""
    if not loose:
        return []
    numbers = [record.line for record in loose]
    messages = values_of([*loose])
    loose.clear()
    return [Source(record=Record(line=numbers[0], value=messages), numbers=numbers)]


def _numbered(value: Any) -> Source:
    """The one conversation of a file; its messages are numbered."""
    source = Source(record=Record(line=1, value=value))
    return replace(source, numbers=range(1, len(message_list(source.value) or ()) + 1))


def _holds_none(line: int, subject: str) -> Problem:
    return Problem(line=line, text=f"{subject} was left out: it holds no messages.")

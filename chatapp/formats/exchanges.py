"""Logs of what was asked of a model server: requests, and the responses to them where there are.

One request may stand alone, in a list, one a line, with its response inside it, beside it or on the
next line, under the names that proxies, batches and browsers give them. The request of a later turn
repeats the conversation of the earlier ones: of those, the longest becomes the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from chatapp.formats.reading import (
    Document,
    Wire,
    digest,
    moment,
    read_document,
    text_or_empty,
)
from chatapp.formats.records import Conversation, ImportedMessage, Problem
from chatapp.messages.vendor import without_imported
from chatapp.messages.wire import VENDOR

REQUEST_KEYS = (
    "request", "params", "request_body", "requestBody", "input", "body", "payload", "data", "json",
)  # fmt: skip
RESPONSE_KEYS = ("response", "response_body", "responseBody", "result", "output", "completion")
BODY_KEYS = (
    "body", "json", "data", "payload", "postData", "message", "content", "text", "raw", "body_raw",
)  # fmt: skip
NATIVE_IDS = ("conversation_id", "session_id", "custom_id", "chat_id", "thread_id")
TIMES = ("created_at", "timestamp", "created", "time", "startedDateTime", "createTime")
DEEPEST_BODY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was asked and what came back; None where no response was logged.

    `around` is the object that holds both. `line` is the line or item it starts on, `numbers` the
    lines or items of its messages, where they stand on several.
    """

    request: Wire
    line: int
    response: Any = None
    around: Wire
    numbers: Sequence[int] | None = None

    @property
    def has_unread_response(self) -> bool:
        """Whether the log has something in the place of a response that is none."""
        return self.response is None and any(self.around.get(key) for key in RESPONSE_KEYS[:3])

    def line_of(self, index: int) -> int:
        """The line or item number of the message with this index."""
        return self.numbers[index] if self.numbers and index < len(self.numbers) else self.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How an interface is told: the key of its messages, what one is, and what a response is."""

    key: str
    is_message: Callable[[Any], bool]
    is_response: Callable[[Any], bool]
    takes_text: bool = False  # in the place of the messages


def exchanges_of(document: Document, dialect: Dialect, problems: list[Problem]) -> list[Exchange]:
    """Return the exchanges of a file in order; what holds none is added to the problems."""
    values = list(_values(document))
    if not document.is_lines and values and any(dialect.is_message(v) for _, v in values):
        return [_gathered(values, dialect)]
    found: list[Exchange] = []
    loose: list[tuple[int, Any]] = []
    for line, value in values:
        exchange = exchange_in(value, dialect, line=line)
        answer = None if exchange or loose else _answer_to(found, value, dialect)
        if answer is not None:
            found[-1] = replace(found[-1], response=answer)
            continue
        if exchange is None and dialect.is_message(value):
            loose.append((line, value))
            continue
        if loose:
            found.append(_gathered(loose, dialect))
            loose.clear()
        if exchange is not None:
            found.append(exchange)
        else:
            subject = "The line" if document.is_lines else f"Item {line}"
            text = f"{subject} was left out: it holds no messages."
            problems.append(Problem(line=line, text=text))
    return found + ([_gathered(loose, dialect)] if loose else [])


def exchange_in(value: Any, dialect: Dialect, *, line: int = 1) -> Exchange | None:
    """Return the exchange that one value holds; None where it holds none."""
    if isinstance(value, list) and value and any(map(dialect.is_message, value)):
        return Exchange(request={dialect.key: value}, around={}, line=line)
    if not isinstance(value, dict):
        return None
    request = _request(value, dialect)
    if request is None:
        return None
    response = response_in(value, dialect)
    return Exchange(request=request, response=response, around=value, line=line)


def _request(value: Wire, dialect: Dialect) -> Wire | None:
    kinds = (list, str) if dialect.takes_text else list

    def is_request(body: Any) -> bool:
        return isinstance(body, dict) and isinstance(body.get(dialect.key), kinds)

    if is_request(value):
        return value
    if value.keys().isdisjoint(REQUEST_KEYS):  # quick, for files of a million lines
        return None
    bodies = (body_in(value.get(key), is_request) for key in REQUEST_KEYS)
    return next((body for body in bodies if body is not None), None)


def body_in(value: Any, is_wanted: Callable[[Any], bool], depth: int = 0) -> Any:
    """Return what is wanted, if a value holds it, perhaps as a text or under a body's key."""
    if is_wanted(value):
        return value
    if depth >= DEEPEST_BODY:
        return None
    if isinstance(value, str):
        events = events_of(value)
        if is_wanted(events):
            return events
        document = read_document(value) if value.lstrip().startswith(("{", "[")) else None
        if document and not document.is_lines:
            return body_in(document.records[0].value, is_wanted, depth + 1)
    if isinstance(value, dict):
        inner = (body_in(value.get(key), is_wanted, depth + 1) for key in BODY_KEYS)
        return next((body for body in inner if body is not None), None)
    return None


def events_of(text: str) -> list[Any]:
    """Return the objects of a stream of server-sent events that was logged as text."""
    if "data:" not in text[:1_000]:
        return []
    events = []
    for line in text.split("\n"):
        if line.startswith("data:"):
            try:
                events.append(json.loads(line[5:]))
            except (ValueError, RecursionError):  # [DONE], or a line that was cut
                continue
    return events


def any_value(document: Document, shows: Callable[[Any], bool]) -> bool:
    """Whether any value of a file, or of the list that it is, shows something."""
    return any(shows(value) for _, value in _values(document))


def _values(document: Document) -> Iterator[tuple[int, Any]]:
    if document.is_lines:
        yield from ((record.line, record.value) for record in document.records)
        return
    value = document.records[0].value if document.records else None
    log = value.get("log") if isinstance(value, dict) else None
    if isinstance(log, dict) and isinstance(log.get("entries"), list):  # a browser's HAR file
        value = log["entries"]
    yield from enumerate(value, start=1) if isinstance(value, list) else [(1, value)]


def _answer_to(found: Sequence[Exchange], value: Any, dialect: Dialect) -> Any:
    """Return the response that a value is or holds, if the request before it has none yet."""
    if not found or found[-1].response is not None or found[-1].numbers:
        return None
    return response_in(value, dialect) or body_in(value, dialect.is_response)


def response_in(value: Any, dialect: Dialect) -> Any:
    """Return the response under one of the names that logs give it; None where there is none."""
    if not isinstance(value, dict):
        return None
    bodies = (body_in(value.get(key), dialect.is_response) for key in RESPONSE_KEYS)
    return next((body for body in bodies if body is not None), None)


def _gathered(values: Sequence[tuple[int, Any]], dialect: Dialect) -> Exchange:
    """Return one exchange of values that are one message each."""
    numbers = [line for line, _ in values]
    request = {dialect.key: [value for _, value in values]}
    return Exchange(request=request, around={}, line=numbers[0], numbers=numbers)


def time_of(exchange: Exchange) -> datetime | None:
    """Return when the request was sent, where the log says so."""
    inner = exchange.around.get("request")
    layers = (exchange.around, inner if isinstance(inner, dict) else {}, exchange.request)
    times = (moment(layer.get(key)) for layer in layers for key in TIMES)
    return next((time for time in times if time), None)


def native_id(exchange: Exchange) -> str:
    """Return the id that the log gives the conversation; empty where it gives none."""
    metadata = exchange.request.get("metadata")
    layers = (exchange.around, exchange.request, metadata if isinstance(metadata, dict) else {})
    ids = (text_or_empty(layer.get(key)) for layer in layers for key in NATIVE_IDS)
    return next((found for found in ids if found), "")


def plain_values(values: Mapping[str, Any], *, without: Iterable[str]) -> dict[str, Any]:
    """Return the plain values of a container, which say how the model was asked."""
    left_out = set(without)
    return {
        key: value
        for key, value in values.items()
        if key not in left_out and isinstance(value, (str, int, float)) and len(str(value)) <= 1_000
    }


def identity_of(name: str, exchange: Exchange, system_prompt: str, wires: Sequence[Wire]) -> str:
    """Return what names a conversation across imports."""
    if native := native_id(exchange):
        asked = next((wire["content"] for wire in wires if wire["role"] == "user"), None)
        return f"{name}:{digest(system_prompt, asked)[:16]}:{native}"
    return f"{name}:{digest(system_prompt, list(map(without_imported, wires)))}"


def longest_of_each(conversations: Iterable[Conversation]) -> list[Conversation]:
    """Return the conversations without those that a later one repeats and goes on with.

    One goes on with another if it begins with all of its messages, and has the same system prompt
    or repeats more than a question: programs put the time and the like into their prompts.
    """
    kept: dict[int, Conversation] = {}
    ends: dict[tuple[str, str], int] = {}  # by digest of a whole conversation, and its prompt
    for number, conversation in enumerate(conversations):
        digests = _digests(conversation.messages)
        keys = [
            (found, prompt)
            for count, found in reversed(list(enumerate(digests[:-1], start=1)))
            for prompt in (conversation.system_prompt, *([""] if count > 1 else []))
        ]
        earlier = next((ends[key] for key in keys if ends.get(key) in kept), None)
        if earlier is not None:
            conversation = _going_on(kept.pop(earlier), conversation)
        kept[number] = conversation
        if digests:
            ends |= dict.fromkeys(
                [(digests[-1], conversation.system_prompt), (digests[-1], "")], number
            )
    return list(kept.values())


def _going_on(earlier: Conversation, later: Conversation) -> Conversation:
    """Return the later one with what only the earlier one knew: usage, ends, times, its identity.

    The first exchange names the conversation, so that a log that has grown adds to its session.
    """
    messages = list(later.messages)
    for index, known in enumerate(earlier.messages[: len(messages)]):
        beside = {VENDOR: known.wire[VENDOR]} if VENDOR in known.wire else {}
        adds = (known.usage, known.finish_reason, known.reasoning, known.metadata, known.created_at)
        if not any((*adds, beside)):
            continue  # quick: a long log repeats each message many times
        repeated = messages[index]
        messages[index] = repeated.changed(
            wire={**beside, **repeated.wire},
            usage=repeated.usage or known.usage,
            finish_reason=repeated.finish_reason or known.finish_reason,
            reasoning=repeated.reasoning or known.reasoning,
            metadata=known.metadata | repeated.metadata,
            created_at=known.created_at or repeated.created_at,
        )
    created_at = earlier.created_at or later.created_at
    return replace(
        later, messages=tuple(messages), created_at=created_at, identity=earlier.identity
    )


def _digests(messages: Sequence[ImportedMessage]) -> list[str]:
    """Return a digest of the conversation up to each of its messages."""
    digests: list[str] = []
    for message in messages:
        wire = message.wire
        said = (wire["role"], wire.get("content") or "", wire.get("tool_calls"))
        digests.append(digest(digests[-1] if digests else "", *said))
    return digests

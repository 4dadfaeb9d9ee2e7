"""The request that an answer was given for, put together again from what was written down of it.

It is compared with the digest of what was sent: a request that is shown is the one that was sent,
or none is shown (docs/architecture.md#what-an-answer-was-given).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from uuid import UUID

from django.core.exceptions import ValidationError

from chatapp.answer_requests import (
    MESSAGES,
    AnswerRequest,
    Part,
    read_parts,
    short_digest,
    texts_named,
)
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.llm.wires import arguments_of
from chatapp.messages.apart import PartFile, PartFileError
from chatapp.messages.pairing import strict_with_sources
from chatapp.messages.wire import REASONING_ITEMS, REPLAY_OF, WireMessage, as_sent
from chatapp.models import Branch, Message
from chatapp.part_store import PartReader
from chatapp.selectors import path_q
from chatapp.turns.made_of import (
    FILE_MARK,
    FOREIGN_MODEL,
    PARAMETERS,
    SYSTEM,
    VERSION,
    WHOLE,
    digests_in,
    with_content,
)
from chatapp.turns.request import digest_of

# A row of a replay repeats one of a replay, and so on; no session has so many in a chain.
MOST_REPEATS = 50
_UNKEPT = {
    FOREIGN_MODEL: "The answer came of a model whose backend is a plug-in, which makes its "
    "requests itself: nobody here knows what it sent.",
    "": "The request of this answer was too large to be written down.",
}


class NoRequestError(Exception):
    """The message is no answer, so no request belongs to it; the text is a sentence."""


class RequestGoneError(Exception):
    """The request cannot be rebuilt; the text says why, `code` is for programs."""

    def __init__(self, sentence: str, *, code: str = "request_not_kept") -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPart:
    """One message of a request. `position` is that of the stored message that it is, if any.

    `is_cut`: what was sent as its content is not what is stored.
    """

    message: WireMessage
    position: int | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltRequest:
    """A request as it was sent: its JSON body, its messages in chat form with where they stand.

    `answer` is the row that it was recorded for: that of the first branch where a replay repeats
    it.
    """

    answer: Message
    api: str
    body: Mapping[str, Any]
    parts: Sequence[SentPart]
    made_of: Mapping[str, Any]
    digest: str


@dataclass(kw_only=True)
class _Recorded:
    """What was written down of one answer's request."""

    answer: Message
    made_of: Mapping[str, Any]
    digest: str

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """All texts that the record names, by their digests; read once."""
        wanted = digests_in(read_parts(self.made_of[MESSAGES]))
        wanted |= {self.made_of["tools"]} if "tools" in self.made_of else set()
        found = texts_named(self.answer.session_id, wanted) if wanted else {}
        if wanted - found.keys():
            raise _changed("a text of it is no longer stored, so nothing shows what")
        return found


def rebuild(message: Message) -> RebuiltRequest:
    """Return the request that a message was the answer to, equal to what was sent.

    Raises NoRequestError for what is no answer, RequestGoneError with a sentence where it was never
    written down, or where what is stored gives another one now. Five queries at most.
    """
    if message.role != Message.Role.ASSISTANT or message.kind != Message.Kind.MESSAGE:
        raise NoRequestError("This message is no answer of a model, so no request belongs to it.")
    record = _record_of(message)
    made = record.made_of
    if "unkept" in made or made.get("v") != VERSION:
        raise RequestGoneError(_UNKEPT.get(made.get("unkept", ""), _UNKEPT[""]))
    parts = _parts(record)
    request = _request(made, [part.message for part in parts], _tools(record))
    model = ModelConfig(
        alias="",
        backend="",
        name=made["model"],
        base_url=made.get("base_url", ""),
        context_window=0,
    )
    body = arguments_of(model, request)
    if short_digest(digest_of([{"api": request.api}, body])) != record.digest:
        raise _changed("what is stored gives another request now: its digest is not that of what")
    return RebuiltRequest(
        answer=record.answer,
        api=request.api,
        body=body,
        parts=parts,
        made_of=made,
        digest=record.digest,
    )


def _changed(why: str) -> RequestGoneError:
    return RequestGoneError(
        f"The request cannot be rebuilt: {why} was sent. A row, a file or this program changed.",
        code="request_changed",
    )


def _record_of(message: Message) -> _Recorded:
    """Return the record of an answer, or of the one that it repeats in a replayed branch."""
    current: Message | None = message
    for _ in range(MOST_REPEATS):
        if current is None:
            break
        rows = AnswerRequest.objects.select_related("message__branch")
        found = rows.filter(message=current.pk).first()
        if found is not None and found.message is not None:
            return _Recorded(answer=found.message, made_of=found.made_of or {}, digest=found.digest)
        repeated = current.metadata.get(REPLAY_OF)
        try:
            current = Message.objects.filter(pk=repeated).first() if repeated else None
        except ValidationError:  # a mark that is none of ours
            current = None
    raise RequestGoneError(
        "Nothing was written down of this answer's request: it was imported, sent by a client, or "
        "given before requests were."
    )


def _tools(record: _Recorded) -> list[dict[str, Any]]:
    digest = record.made_of.get("tools")
    if not digest:
        return []
    found: list[dict[str, Any]] = json.loads(record.texts[digest])
    return found


def _request(
    made: Mapping[str, Any], messages: Sequence[WireMessage], tools: Sequence[dict[str, Any]]
) -> ModelRequest:
    named = {name: made[key] for key, name in PARAMETERS.items() if key in made}
    return ModelRequest(
        messages=messages,
        tools=tools,
        api=made.get("api", "chat"),
        adaptations=frozenset(made.get("codes", ())),
        **named,
    )


def _parts(record: _Recorded) -> list[SentPart]:
    """Return the messages of the request before the wire, each with its place."""
    parts, texts = read_parts(record.made_of[MESSAGES]), record.texts
    rows = _rows(record, [part[0] for part in parts if isinstance(part, tuple)])
    reader = PartReader(record.answer.session_id)
    has_items = "items" in record.made_of
    found = [_part(part, rows, texts, reader, has_items=has_items) for part in parts]
    if "raw" in record.made_of:
        return found
    front = record.made_of.get("front")
    mended = strict_with_sources([part.message for part in found], front=front)
    if len(mended) != len(found):
        raise _changed("its messages no longer fit together as what")
    return [
        SentPart(message=message, position=part.position, is_cut=part.is_cut)
        for (message, _), part in zip(mended, found, strict=True)
    ]


def _rows(record: _Recorded, positions: Sequence[int]) -> Mapping[int, Message]:
    """Return the stored messages of a request by their positions on the branch that was asked."""
    if not positions:
        return {}
    branch = record.answer.branch
    if (other := record.made_of.get("branch")) is not None:
        branch = Branch.objects.get(pk=UUID(other))
    on_path = path_q(branch, after=min(positions) - 1, through=max(positions))
    rows = Message.objects.filter(on_path, kind__in=Message.SPOKEN)
    found = {row.position: row for row in rows.filter(position__in=positions)}
    if len(found) < len(set(positions)):
        raise _changed("a message of it is no longer stored, so nothing shows what")
    return found


def _part(
    part: Part,
    rows: Mapping[int, Message],
    texts: Mapping[str, str],
    reader: PartReader,
    *,
    has_items: bool,
) -> SentPart:
    if isinstance(part, tuple):
        position, digest = part
        message = _stored(rows[position], has_items=has_items)
        if digest:
            content = _with_data(json.loads(texts[digest]), reader)
            message = with_content(message, content)
        return SentPart(
            message=reader.messages([message])[0], position=position, is_cut=bool(digest)
        )
    if part.startswith(SYSTEM):
        pieces = [texts[digest] for digest in part[len(SYSTEM) :].split(",")]
        return SentPart(message={"role": "system", "content": "".join(pieces)})
    message = json.loads(texts[part[len(WHOLE) :]])
    return SentPart(message=cast(WireMessage, _with_data(message, reader)))


def _stored(row: Message, *, has_items: bool) -> WireMessage:
    wire = as_sent(row.stored_wire())
    if has_items and REASONING_ITEMS in row.metadata:
        wire[REASONING_ITEMS] = row.metadata[REASONING_ITEMS]
    return wire


def _with_data(value: Any, reader: PartReader) -> Any:
    """Return a JSON value with the data of its files where their marks stand."""
    if isinstance(value, str):
        if not value.startswith(FILE_MARK):
            return value
        digest, _, size = value.removeprefix(FILE_MARK).partition(":")
        try:
            return reader.read(PartFile(digest=digest, size=int(size)))
        except PartFileError as error:
            raise _changed(f"{error}, so nothing shows what") from error
    if isinstance(value, dict):
        return {key: _with_data(one, reader) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_data(one, reader) for one in value]
    return value

"""What a request was made of, written down so that it can be rebuilt byte for byte.

A record (chatapp.answer_requests.AnswerRequest.made_of) holds, each where it is not empty:

    v            version of this form
    messages     the request's messages in order: stored ones by their steps (`3+11` is 3 to 14),
                 `7~digest` with what was sent in the place of its content, `t:digest` a message
                 that is none of the stored, `s:digest,digest` a system message by its pieces
    model, base_url, api, max, temperature, effort, stream, plain, codes, no_tools
                 what else the body depends on: the sampling parameters, and the outgoing form
    tools        digest of the tools
    previous, held, stores
                 the answer that a continuation went on from, and what its server had already
    items, raw   whether reasoning went back; whether messages were not mended together
    front        how many messages stand before the first stored one, where that is a late rule,
                 which goes out as a note
    branch       the branch that was asked in, where the answer stands in another
    unkept       why nothing of it can be rebuilt: too_large, foreign_model
    profile, summaries, first, pins, cut, steps
                 the context backend's own words (chatapp.context.assembly.Context.made_of)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from chatapp.answer_requests import (
    CUT,
    FIRST,
    MESSAGES,
    PINS,
    Part,
    RequestRecord,
    long_id,
    read_parts,
    short_digest,
    text_digest,
    write_parts,
)
from chatapp.context.assembly import Context
from chatapp.incidents import LEFT_OUT_ON_PURPOSE
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.messages.apart import PartFile, files_of, with_files
from chatapp.messages.pairing import strict_with_sources
from chatapp.messages.wire import REASONING_ITEMS, WireMessage
from chatapp.models import POSITION_STEP, Message, Session

VERSION = 1
# Characters of texts that one record may bring: beyond, only what it says of itself is kept.
MOST_TEXT_CHARS = 1_000_000
OWN_BACKENDS = "chatapp.llm."
WHOLE, SYSTEM = "t:", "s:"
TOO_LARGE, FOREIGN_MODEL = "too_large", "foreign_model"
# Stands for the data of a file; no stored text holds the character.
FILE_MARK = "\x00file:"
_SHORTEST_FILE_CHARS = 64
# Fields of ModelRequest by their names in a record; what is empty is left out.
PARAMETERS: Mapping[str, str] = {
    "max": "max_output",
    "temperature": "temperature",
    "effort": "effort",
    "stream": "stream",
    "plain": "plain_text",
    "no_tools": "forbids_tools",
    "previous": "previous_response_id",
    "held": "messages_on_server",
    "stores": "stores",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request that went out: to which model, for which context, and its body's SHA-256."""

    request: ModelRequest
    model: ModelConfig
    context: Context
    digest: str


def record_of(session: Session, sent: SentRequest) -> RequestRecord:
    """Return what is stored of a request with the answer that it got."""
    context, model, request = sent.context, sent.model, sent.request
    texts, left_out = _Texts(), context.left_out or {}
    made: dict[str, Any] = {"v": VERSION, "model": model.name}
    made |= {key: value for key, value in context.made_of.items() if value not in ("", None)}
    if not model.backend.startswith(OWN_BACKENDS):
        made["unkept"] = FOREIGN_MODEL
    else:
        body = _parameters(model, request)
        if request.tools:
            body["tools"] = texts.keep(json.dumps(list(request.tools), ensure_ascii=False))
        body |= _messages(session, context, request, texts)
        is_kept = texts.chars <= MOST_TEXT_CHARS
        made |= body if is_kept else {"unkept": TOO_LARGE}
        texts = texts if is_kept else _Texts()
    return RequestRecord(
        made_of=made,
        digest=short_digest(sent.digest),
        texts=texts.found,
        left_out=left_out["messages"] if left_out else None,
        left_out_on_purpose=bool(left_out) and left_out["why"] in LEFT_OUT_ON_PURPOSE,
    )


def _parameters(model: ModelConfig, request: ModelRequest) -> dict[str, Any]:
    named: dict[str, Any] = {key: getattr(request, name) for key, name in PARAMETERS.items()}
    named = {key: value for key, value in named.items() if value not in (None, "", 0, False)}
    if request.temperature is not None:
        named["temperature"] = request.temperature
    if model.base_url:
        named["base_url"] = model.base_url
    if request.api != Session.Api.CHAT:
        named["api"] = request.api
    if codes := model.adaptations | request.adaptations:
        named["codes"] = sorted(codes)
    return named


@dataclass(slots=True)
class _Texts:
    """The texts that one record names."""

    found: dict[str, str] = field(default_factory=dict)

    def keep(self, text: str) -> str:
        """Return the digest that the text is kept under."""
        digest = text_digest(text)
        self.found[digest] = text
        return digest

    @property
    def chars(self) -> int:
        return sum(map(len, self.found.values()))


def _messages(
    session: Session, context: Context, request: ModelRequest, texts: _Texts
) -> dict[str, Any]:
    """Return the record's words for the messages of a request."""
    has_items = any(REASONING_ITEMS in message for message in request.messages)
    files = _files_in([*context.messages, *context.stored.values()])
    sent = [_marked(message, files) for message in request.messages]
    stored = {
        place: _stored_form(message, has_items=has_items)
        for place, message in context.stored.items()
    }
    places = [*request.places, *[""] * (len(sent) - len(request.places))]
    own = [stored.get(place) for place in places]
    front = _front_before_rule(own)
    found = _mended(sent, own, front) or _as_they_are(sent, own)
    parts = [
        _part(session, place, one, message, texts)
        for place, one, message in zip(places, found.kinds, sent, strict=True)
    ]
    said: dict[str, Any] = {MESSAGES: write_parts(parts)}
    if front is not None and not found.is_raw:
        said["front"] = front
    return said | ({"items": 1} if has_items else {}) | ({"raw": 1} if found.is_raw else {})


def _front_before_rule(own: Sequence[WireMessage | None]) -> int | None:
    """Return where the first stored message stands, if it is a system message; None otherwise."""
    found = next(((index, row) for index, row in enumerate(own) if row is not None), None)
    return found[0] if found is not None and found[1]["role"] == "system" else None


_STORED, _CONTENT, _OTHER = "stored", "content", "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """How each message of a request is told: by its row, by row and content, or as a text."""

    kinds: Sequence[str]
    is_raw: bool = False


def _mended(
    sent: Sequence[WireMessage], own: Sequence[WireMessage | None], front: int | None
) -> _Told | None:
    """Tell messages by their rows as a strict server is sent them, calls with their results.

    That is how a context is put together, and how rebuilding does it again. None where it does not
    lead to just these messages.
    """
    tried = [message if row is None else row for message, row in zip(sent, own, strict=True)]
    mended = _strict(tried, front)
    if len(mended) != len(sent):
        return None
    kinds = [
        _OTHER if row is None else _kind(message, one)
        for message, row, one in zip(sent, own, mended, strict=True)
    ]
    for index, kind in enumerate(kinds):
        row = own[index]
        if row is not None and kind == _CONTENT:
            tried[index] = with_content(row, sent[index].get("content"))
        elif row is not None and kind == _OTHER:
            tried[index] = sent[index]
    return _Told(kinds=kinds) if _strict(tried, front) == list(sent) else None


def _as_they_are(sent: Sequence[WireMessage], own: Sequence[WireMessage | None]) -> _Told:
    """Tell messages by their rows where these are sent as they are stored, others as texts."""
    kinds = [
        _OTHER if row is None else _kind(message, row)
        for message, row in zip(sent, own, strict=True)
    ]
    return _Told(kinds=kinds, is_raw=True)


def _kind(message: WireMessage, made: WireMessage) -> str:
    if message == made:
        return _STORED
    same = "content" in message and with_content(made, message.get("content")) == message
    return _CONTENT if same else _OTHER


def _strict(messages: Sequence[WireMessage], front: int | None) -> list[WireMessage]:
    return [message for message, _ in strict_with_sources(messages, front=front)]


def with_content(message: WireMessage, content: Any) -> WireMessage:
    """Return a message with another content."""
    return cast(WireMessage, {**message, "content": content})


def _part(session: Session, place: str, kind: str, message: WireMessage, texts: _Texts) -> Part:
    if kind == _STORED:
        return position_of(place), ""
    if kind == _CONTENT:
        return position_of(place), texts.keep(_json(message.get("content")))
    content = message.get("content")
    if message["role"] == "system" and isinstance(content, str) and len(message) == 2:
        pieces = [content]
        prompt = session.system_prompt
        if prompt and content.startswith(prompt) and content != prompt:
            pieces = [prompt, content[len(prompt) :]]
        return SYSTEM + ",".join(map(texts.keep, pieces))
    return WHOLE + texts.keep(_json(message))


def position_of(place: str) -> int:
    """Return the position of a message's place."""
    return int(Decimal(place) * POSITION_STEP)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _stored_form(message: WireMessage, *, has_items: bool) -> WireMessage:
    """Return a stored message with marks in the place of its files, and its reasoning or none."""
    if not has_items and REASONING_ITEMS in message:
        left = {key: value for key, value in message.items() if key != REASONING_ITEMS}
        message = cast(WireMessage, left)
    content = message.get("content")
    marked = with_files(content, _mark)
    return message if marked is content else with_content(message, marked)


def _mark(file: PartFile) -> str:
    return f"{FILE_MARK}{file.digest}:{file.size}"


def _files_in(messages: Sequence[WireMessage]) -> dict[str, PartFile]:
    contents = (message.get("content") for message in messages)
    found = (files_of(content) for content in contents if isinstance(content, list))
    return {file.digest: file for files in found for file in files}


def _marked(message: WireMessage, files: Mapping[str, PartFile]) -> WireMessage:
    """Return a message that goes out with marks in the place of what its files hold."""
    content = message.get("content")
    if not files or not isinstance(content, list):
        return message
    return with_content(message, _marked_in(content, files))


def _marked_in(value: Any, files: Mapping[str, PartFile]) -> Any:
    if isinstance(value, str):
        if len(value) < _SHORTEST_FILE_CHARS:
            return value
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        return _mark(files[digest]) if digest in files else value
    if isinstance(value, Mapping):
        return {key: _marked_in(one, files) for key, one in value.items()}
    if isinstance(value, list):
        return [_marked_in(one, files) for one in value]
    return value


def digests_in(parts: Collection[Part]) -> set[str]:
    """Return the digests of the texts that parts of a record name."""
    found: set[str] = set()
    for part in parts:
        if isinstance(part, tuple):
            found |= {part[1]} - {""}
        else:
            found |= set(part[len(WHOLE) :].split(","))
    return found


# --- in words -------------------------------------------------------------------------------------

# What a record says of the wire and is no parameter of the model.
_PARAMETER_NAMES = ("max", "temperature", "effort", "stream", "codes", "no_tools")


def described(made_of: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says, for people and programs: ids whole, places as people read them.

    {model, api, prompt, tools, parameters, profile, summaries, first_kept, pins, cut, steps}; what
    there was none of is null or empty.
    """
    parts = read_parts(made_of.get(MESSAGES, ""))
    systems = (part for part in parts if isinstance(part, str) and part.startswith(SYSTEM))
    first = next(systems, "")
    name, _, version = made_of.get("profile", "").rpartition(" ")
    return {
        "model": made_of.get("model"),
        "api": made_of.get("api", Session.Api.CHAT),
        "prompt": first[len(SYSTEM) :].split(",")[0] or None,
        "tools": made_of.get("tools"),
        "parameters": {key: made_of[key] for key in _PARAMETER_NAMES if key in made_of},
        "profile": {"name": name, "version": int(version)} if name else None,
        "summaries": [str(long_id(one)) for one in made_of.get("summaries", "").split()],
        "first_kept": next(iter(_places_in(made_of, FIRST)), None),
        "pins": _places_in(made_of, PINS),
        "cut": _places_in(made_of, CUT),
        "steps": made_of.get("steps", "").split(),
    }


def _places_in(made_of: Mapping[str, Any], key: str) -> list[str]:
    parts = read_parts(made_of.get(key, ""))
    return [place_of(part[0]) for part in parts if isinstance(part, tuple)]


def place_of(position: int) -> str:
    """Return a position as people read it: 3, or 3.5."""
    return Message(position=position).place

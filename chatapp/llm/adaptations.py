"""One table of refusals: what is changed about a request that a server refused for its form.

It serves turns, summaries and every other call. A refusal is read once into what it is about
(error_classifier.py) and answered, one change at a time, by the next step of that kind's row; the
last step is the conversation as one text. A change is a code. Those that the server's model wants
of everybody are remembered with its limits, those that this conversation needs with its session.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chatapp.llm.error_forms import EFFORT_WORDS, STREAMING, topics_of
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.errors import ModelError
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.messages.outgoing import (
    ALTERNATING_ROLES,
    FLAT,
    ONE_SYSTEM_MESSAGE,
    STRICT_IDS,
    SYSTEM_AS_USER,
    TEXT_BESIDE_CALLS,
    TEXTS_ONLY,
    TOOLS_AS_TEXT,
    WITH_THOUGHTS,
    WITHOUT_THOUGHTS,
)
from chatapp.messages.patterns import lazy_pattern

DROP, RENAME, API = "drop:", "rename:", "api:"
"""Codes with a name behind them: a parameter that is left out, one that gets another name (as
`rename:max_tokens:max_completion_tokens`), the wire on which a model is offered."""
STREAM_ON, STREAM_OFF = "stream:on", "stream:off"
"""The answer comes in pieces, or in one, whatever was asked for."""
OUTPUT_LOWERED = "output_lowered:"
"""A shorter answer, with its tokens."""
SMALLEST_OUTPUT_TOKENS = 16
_OTHER_NAMES = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
# What a request is made of: without these there is none.
_ESSENTIAL = frozenset({"model", "messages", "input", "stream"})
# Names that are words of sentences, too ("in a store", "please include"): what has to stand before
# them. Without `store: false` some servers keep what was said.
_VERBS = frozenset({"store", "include"})
_MEANT_AS_NAME = r"(?:['\"`(\[:=]\s?|\b(?:parameter|argument|field|key|property)s?\s)"
_OTHER_API = {"chat": "responses", "responses": "chat"}

# What asks a model to think, on either wire.
_EFFORT = ("reasoning_effort", "reasoning")
# What a server says that takes no message without a text.
_NULL = lazy_pattern(r"\bnull\b|\bnone(?:type)?\b|<nil>|\bvalid string\b|\bfield required\b")
# What a server says that takes no system message at all, and of one that takes it elsewhere.
_TAKES_NONE = lazy_pattern(
    r"\b(?:may|must|can|should) not\b|\bcan(?:not|'t)\b"
    r"|\bnot (?:a member|a valid|supported|enabled|available|allowed|accepted|permitted)\b"
    r"|(?:\bnot|n't) (?:support|accept|allow|take|know|have)\b"
    r"|\b(?:unsupported|unknown|unrecogni[sz]ed|invalid)\b|\bno (?:system|developer)\b"
    r"|\bwithout\b|\bremove\b|\b(?:disabled|switched off|turned off|prohibited|forbidden|rejected"
    r"|blocked|locked|denied|absent)\b"
)
_TAKES_ONE = lazy_pattern(
    r"\b(?:one|two|single|several|multiple|second|duplicate|first|start|begin\w*|front|middle|last"
    r"|after|before|once|position|order)\b"
)
# A refusal with no status that says what it means: one of what was sent.
_OF_FORM = (400, 422, 500)
_OF_TOOLS = lazy_pattern(r"\btool_choice\b|\bparallel_tool_calls\b|\bfunction_call\b")
# What is spoken of under other names than the parameter's.
_SPOKEN_OF = (
    (lazy_pattern(r"\b(?:reasoning|thinking|effort)\b"), _EFFORT),
    (lazy_pattern(r"\bsampling\b|\btemperatures?\b"), ("temperature",)),
)
_STREAM = lazy_pattern(r"\bstream(?:s|ed|ing)?\b")
# What servers and frameworks say of a path that they do not have, and of nothing else.
_NO_PATH = lazy_pattern(
    r"(?:http status )?(?:40[45])?[ :]*(?:page |route |url )?(?:not found|method not allowed)\.?"
    r"|cannot post /\S*|http status 40[45]"
)

# Where streaming itself is what the server wants or refuses, whatever else it names.
_WANTS_A_WAY = lazy_pattern(
    r"\bstream(?:ing)?\b.{0,12}\b(?:required|mandatory|must|should|has to|needs to)\b"
    r"|unsupported value: 'stream'|\bonly supports? (?:the )?stream"
)

# For each kind of refusal the changes to try, in this order.
_STEPS: Mapping[ErrorKind, tuple[str, ...]] = {
    ErrorKind.ROLE_ORDER: (ALTERNATING_ROLES, TOOLS_AS_TEXT, FLAT),
    ErrorKind.SYSTEM_ORDER: (ONE_SYSTEM_MESSAGE, SYSTEM_AS_USER, ALTERNATING_ROLES, FLAT),
    ErrorKind.BROKEN_PAIRS: (TOOLS_AS_TEXT, FLAT),
    ErrorKind.ARGUMENTS_REFUSED: (TOOLS_AS_TEXT, FLAT),
    ErrorKind.IDS_REFUSED: (STRICT_IDS, TOOLS_AS_TEXT, FLAT),
    ErrorKind.TOOLS_REFUSED: (TOOLS_AS_TEXT, f"{DROP}tools", FLAT),
    ErrorKind.THOUGHTS_REFUSED: (WITHOUT_THOUGHTS, TOOLS_AS_TEXT, FLAT),
    ErrorKind.PARTS_REFUSED: (TEXTS_ONLY, FLAT),
    # Of what nobody sent: some servers fill it in where tools are sent.
    ErrorKind.PARAMETER_REFUSED: (TOOLS_AS_TEXT, f"{DROP}tools"),
    ErrorKind.REJECTED: (FLAT,),
}
# What a server says that misses the thoughts of its earlier answers.
_MISSES = lazy_pattern(
    r"passed? back|\bmissing\b|\brequired\b|must (?:be (?:sent|included|present|provided)|start)"
    r"|\bexpected\b"
)
# Changes that a model's server wants of every request; the others belong to one conversation.
_OF_MODEL = frozenset({
    ALTERNATING_ROLES, STRICT_IDS, ONE_SYSTEM_MESSAGE, SYSTEM_AS_USER, TEXT_BESIDE_CALLS,
    WITH_THOUGHTS, STREAM_ON, STREAM_OFF,
})  # fmt: skip

_TEXTS = {
    ALTERNATING_ROLES: "The server wants user and assistant to take turns; neighbours of one role "
    "were joined.",
    ONE_SYSTEM_MESSAGE: "The server takes one system message; they were joined.",
    SYSTEM_AS_USER: "The server takes no system message; its text was put before the first "
    "message.",
    STRICT_IDS: "The server did not accept the ids of tool calls; short ones were sent.",
    TOOLS_AS_TEXT: "The server did not accept the tool calls and their results; they were sent as "
    "text.",
    TEXT_BESIDE_CALLS: "The server wants a text beside tool calls; one was sent.",
    WITH_THOUGHTS: "The server missed the reasoning of its earlier tool calls; it was sent back.",
    WITHOUT_THOUGHTS: "The server did not accept the reasoning of earlier answers; it was left "
    "out.",
    TEXTS_ONLY: "The server did not accept the messages' parts; their texts were sent plainly.",
    FLAT: "The server refused the messages; the conversation was sent as one text.",
    STREAM_ON: "The server answers in pieces only; it was asked for them.",
    STREAM_OFF: "The server does not answer in pieces; the whole answer was asked for.",
}


_IN_FORCE = {
    ALTERNATING_ROLES: "Neighbours of one role are joined, so that user and assistant take turns.",
    ONE_SYSTEM_MESSAGE: "System messages are joined into one.",
    SYSTEM_AS_USER: "The system prompt is sent as the beginning of the first message.",
    STRICT_IDS: "Ids of tool calls are nine letters and digits.",
    TOOLS_AS_TEXT: "Tool calls and their results are sent as text.",
    TEXT_BESIDE_CALLS: "A text stands beside every tool call.",
    WITH_THOUGHTS: "The reasoning of all earlier tool calls is sent back.",
    WITHOUT_THOUGHTS: "The reasoning of earlier answers is left out.",
    TEXTS_ONLY: "Messages are sent as plain texts.",
    FLAT: "The conversation is sent as one text.",
    STREAM_ON: "Answers are asked for in pieces.",
    STREAM_OFF: "Answers are asked for in one piece.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """One change of a request: its code, and a sentence for people."""

    code: str
    text: str


def is_of_model(code: str) -> bool:
    """Whether every request to the model wants this change, whatever the conversation."""
    return code in _OF_MODEL or code.startswith((DROP, RENAME, API))


def adaptation_for(
    error: ModelError, request: ModelRequest, arguments: Mapping[str, Any], done: Collection[str]
) -> Adaptation | None:
    """Return the next change after a refusal, or None where nothing is left to try.

    `arguments` are the refused request as it was sent, `done` the codes that were in force for it.
    """
    if error.kind is ErrorKind.PARAMETER_REFUSED and _is_about_streaming(error):
        return _of_streaming(error, request, arguments, done)
    if error.kind is ErrorKind.PARAMETER_REFUSED:
        found = _without_parameter(error, arguments, done)
        if found or not _OF_TOOLS.search(f"{error.param} {error.detail.lower()}"):
            return found
    if error.kind is ErrorKind.WRONG_WIRE:
        return _on_the_other_wire(request, done)
    if error.kind is ErrorKind.REJECTED:
        change = _of_unknown_meaning(error, request, arguments, done)
        if change is not None:
            return change
    code = next((code for code in _steps(error, request, arguments) if code not in done), None)
    if code is None or (code == FLAT and not _may_be_about_messages(error)):
        return None
    return _told(code)


def _steps(
    error: ModelError, request: ModelRequest, arguments: Mapping[str, Any]
) -> tuple[str, ...]:
    if error.kind is not ErrorKind.REJECTED or error.status not in _OF_FORM:
        return _steps_of(error.kind, error, arguments)
    # Nobody knows the wording: what it speaks of is changed first, and all of it at last.
    topics = [kind for kind in topics_of(f"{error.param} {error.detail}") if _has(kind, request)]
    topics = [_by_role_at(error, arguments) or kind for kind in topics]
    steps = dict.fromkeys(step for kind in topics for step in _steps_of(kind, error, arguments))
    if not _TAKES_NONE.search(error.detail.lower()):
        steps.pop(f"{DROP}tools", None)
    return (*(step for step in steps if step != FLAT), FLAT)


def _has(kind: ErrorKind, request: ModelRequest) -> bool:
    """Whether the request has what a kind is about; tools that are only offered are for no row."""
    if kind is ErrorKind.PARTS_REFUSED:
        return any(not isinstance(one.get("content"), str) for one in request.messages)
    if kind is ErrorKind.SYSTEM_ORDER:
        return any(one["role"] == "system" for one in request.messages)
    return kind is ErrorKind.ROLE_ORDER or any(one.get("tool_calls") for one in request.messages)


def _by_role_at(error: ModelError, arguments: Mapping[str, Any]) -> ErrorKind | None:
    """Return the kind of a refusal of the role that one message has: that of a system, of a tool.

    Servers name the place, and those roles that they take.
    """
    sent, index = arguments.get("messages") or (), error.message_index
    if index is None or index >= len(sent) or "role" not in f"{error.param} {error.detail}".lower():
        return None
    kinds = {"system": ErrorKind.SYSTEM_ORDER, "tool": ErrorKind.TOOLS_REFUSED}
    return kinds.get(sent[index]["role"])


def _steps_of(kind: ErrorKind, error: ModelError, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    steps = _STEPS.get(kind, ())
    words = error.detail.lower()
    if kind is ErrorKind.PARTS_REFUSED and _NULL.search(words):
        return (TEXT_BESIDE_CALLS, *steps)
    if kind is ErrorKind.SYSTEM_ORDER and _takes_no_system_message(words):
        return (SYSTEM_AS_USER, *steps)
    if kind is not ErrorKind.THOUGHTS_REFUSED:
        return steps
    asked = tuple(f"{DROP}{name}" for name in _EFFORT if name in arguments)
    misses = (WITH_THOUGHTS,) if _MISSES.search(f"{error.param} {words}") else ()
    return (*misses, *steps[:1], *asked, *steps[1:])


def _of_unknown_meaning(
    error: ModelError, request: ModelRequest, arguments: Mapping[str, Any], done: Collection[str]
) -> Adaptation | None:
    """Return what is tried before the conversation is sent as one text.

    A refusal that names a parameter which was sent is about it, whatever its words; a path that a
    server does not have is the one of an API that it does not offer.
    """
    if error.status in (400, 422):
        named = {name: value for name, value in arguments.items() if _is_no_word(name)}
        found = _without_parameter(error, named, done) or _of_topic(error, request, arguments, done)
        if found is None and FLAT in done and TEXTS_ONLY not in done and _has_parts(request):
            return _told(TEXTS_ONLY)
        return found
    if error.status in (404, 405) and _NO_PATH.fullmatch(error.detail.strip().lower()):
        return _on_the_other_wire(request, done)
    return None


def _of_topic(
    error: ModelError, request: ModelRequest, arguments: Mapping[str, Any], done: Collection[str]
) -> Adaptation | None:
    """Return the change of what a refusal speaks of, where that is no part of the messages."""
    words = error.detail.lower()
    if next(topics_of(f"{error.param} {words}"), None) is not None:
        return None
    spoken = (name for topic, names in _SPOKEN_OF if topic.search(words) for name in names)
    name = next((name for name in spoken if name in arguments), None)
    if name is not None:
        return _dropped(name)
    return _the_other_way(request, done) if _STREAM.search(words) else None


def _is_no_word(name: str) -> bool:
    """Whether a parameter's name in a sentence is meant as one: "include" may be a verb."""
    return "_" in name or name == "temperature"


def _takes_no_system_message(words: str) -> bool:
    return bool(_TAKES_NONE.search(words)) and not _TAKES_ONE.search(words)


def _is_about_streaming(error: ModelError) -> bool:
    return error.param == "stream" or bool(STREAMING.search(error.detail.lower()))


def _of_streaming(
    error: ModelError, request: ModelRequest, arguments: Mapping[str, Any], done: Collection[str]
) -> Adaptation | None:
    """Return the change after a refusal that speaks of streaming, and may be about what goes with
    it: a parameter that is named is left out first, for `stream` concerns every answer.
    """
    other = {name: value for name, value in arguments.items() if name != "tools"}
    named = {name: value for name, value in other.items() if _is_no_word(name)}
    is_meant = error.param == "stream" or _WANTS_A_WAY.search(error.detail.lower())
    first = None if is_meant else _without_parameter(error, named, done)
    return first or _the_other_way(request, done) or _without_parameter(error, other, done)


def _the_other_way(request: ModelRequest, done: Collection[str]) -> Adaptation | None:
    """Ask for pieces where one was refused, and the other way round; once."""
    was_tried = not {STREAM_ON, STREAM_OFF}.isdisjoint(done)
    return None if was_tried else _told(STREAM_OFF if request.stream else STREAM_ON)


def _has_parts(request: ModelRequest) -> bool:
    return any(isinstance(one.get("content"), list) for one in request.messages)


def lower_output(error: ModelError, now: int) -> Adaptation | None:
    """Return the shorter answer to ask for after a refusal of its length; its code has the number.

    None where nothing is left to halve.
    """
    lower = error.allowed if error.allowed and error.allowed < now else now // 2
    if lower < SMALLEST_OUTPUT_TOKENS:
        return None
    return Adaptation(
        code=f"{OUTPUT_LOWERED}{lower}",
        text=f"The server does not answer with {now:,} tokens at most; {lower:,} were asked for.",
    )


def output_of(code: str) -> int | None:
    """Return the longest answer that a code asks for; None where it is about something else."""
    return int(code.removeprefix(OUTPUT_LOWERED)) if code.startswith(OUTPUT_LOWERED) else None


def _may_be_about_messages(error: ModelError) -> bool:
    """Whether a refusal of unknown meaning may be one of what was said, and not of the key."""
    says_so = error.status == 200 and "invalid" in f"{error.code} {error.detail}".lower()
    return error.kind is not ErrorKind.REJECTED or error.status in (400, 422, 500) or says_so


def _without_parameter(
    error: ModelError, arguments: Mapping[str, Any], done: Collection[str]
) -> Adaptation | None:
    """Rename or leave out the parameter that the error names; it is one that was sent."""
    name = refused_parameter(error, arguments)
    if name is None:
        return None
    other = _OTHER_NAMES.get(name)
    if other and not any(code.startswith(RENAME) for code in done):
        return Adaptation(
            code=f"{RENAME}{name}:{other}",
            text=f"The server takes no parameter {name}; {other} was sent in its place.",
        )
    return _dropped(name)


def _told(code: str) -> Adaptation:
    if code.startswith(DROP):
        return _dropped(code.removeprefix(DROP))
    return Adaptation(code=code, text=_TEXTS[code])


def _dropped(name: str) -> Adaptation:
    return Adaptation(
        code=f"{DROP}{name}", text=f"The server takes no parameter {name}; it was left out."
    )


def refused_parameter(error: ModelError, arguments: Mapping[str, Any]) -> str | None:
    """Return the parameter of a request that an error is about; None where it names none of it."""
    sent = [name for name in arguments if name not in _ESSENTIAL]
    # `body.temperature`: the first name that stands in the request tells what is meant.
    path = re.split(r"[.\[\]]+", error.param)
    head = next((part for part in path if part in arguments), "")
    if head in sent and head not in ("tools",):
        return head
    words = error.detail.lower()
    places = {name: _place(name, words) for name in sent}
    named = [name for name in sent if places[name] >= 0]
    if not named and EFFORT_WORDS.search(words):
        return next((name for name in _EFFORT if name in sent), None)
    if not named:
        return next((name for name in sent if name in error.code.lower()), None)
    # "max_tokens is not supported, use max_completion_tokens": the first one is meant.
    return min(named, key=lambda name: places[name], default=None)


def _place(name: str, words: str) -> int:
    # Some write it in another style: reasoningEffort, reasoning.effort.
    spelled = re.escape(name).replace("_", "[_.]?")
    before = _MEANT_AS_NAME if name in _VERBS else "(?<![a-z_])"
    found = re.search(rf"{before}{spelled}(?![a-z_])", words)
    return found.start() if found else -1


def _on_the_other_wire(request: ModelRequest, done: Collection[str]) -> Adaptation | None:
    other = _OTHER_API[request.api]
    if any(code.startswith(API) for code in done):
        return None
    names = {"chat": "Chat Completions", "responses": "the Responses API"}
    return Adaptation(
        code=f"{API}{other}", text=f"The model is offered over {names[other]}; it was asked there."
    )


def in_words(code: str) -> str:
    """Return what a change does, for people who read of it later; the code where nobody knows."""
    if code.startswith(DROP):
        return f"The parameter {code.removeprefix(DROP)} is left out."
    if code.startswith(RENAME):
        old, _, new = code.removeprefix(RENAME).partition(":")
        return f"The parameter {old} is sent as {new}."
    if code.startswith(API):
        return f"The model is asked over the {code.removeprefix(API)} API."
    return _IN_FORCE.get(code, code)


def api_of(codes: Iterable[str]) -> str | None:
    """Return the API that the codes name; None where they leave it to the session."""
    named = (code.removeprefix(API) for code in sorted(codes) if code.startswith(API))
    return next(named, None)


def adapted(
    request: ModelRequest, model: ModelConfig, more: Collection[str] = frozenset()
) -> ModelRequest:
    """Return a request with what its model is known to want, and `more` codes."""
    codes = request.adaptations | model.adaptations | frozenset(more)
    api = api_of(codes)
    if STREAM_ON in codes or STREAM_OFF in codes:
        request = replace(request, stream=STREAM_ON in codes)
    if api is None or api == request.api:
        return replace(request, adaptations=codes)
    return replace(
        request,
        adaptations=codes,
        api=api,
        # An answer that is kept on one wire is not known on the other.
        previous_response_id="",
        messages_on_server=0,
        stores=False,
    )


def with_parameters(arguments: dict[str, Any], codes: Collection[str]) -> dict[str, Any]:
    """Return the arguments of a call with parameters renamed and left out."""
    for code in codes:
        if code.startswith(RENAME):
            old, new = code.removeprefix(RENAME).split(":")
            if old in arguments:
                arguments[new] = arguments.pop(old)
    for code in codes:
        if code.startswith(DROP):
            arguments.pop(code.removeprefix(DROP), None)
    return arguments

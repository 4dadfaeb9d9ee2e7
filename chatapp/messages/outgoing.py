"""The one form in which messages go out: whatever is stored, every server can read it.

Between a context and the wires, for turns, summaries and every other call. Storage is never changed
by anything here. Equal messages give equal ones, so that prompt caches hold. What more a server
wants is said by codes, its adaptations; docs/architecture.md#what-is-sent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, cast

from chatapp.messages.pairing import flattened, strict_with_sources
from chatapp.messages.wire import REASONING_ITEMS, WireMessage, text_of

ALTERNATING_ROLES = "alternating_roles"
"""User and assistant take turns, the user first; messages with calls, and results, do not count."""
STRICT_IDS = "strict_ids"
"""Ids of calls are nine letters and digits."""
TOOLS_AS_TEXT = "tools_as_text"
"""Calls and their results are told as text."""
TEXTS_ONLY = "plain_text"
"""Contents are texts; what is no text is named."""
TEXT_BESIDE_CALLS = "text_beside_calls"
"""A message with calls has a text, too."""
WITH_THOUGHTS = "with_thoughts"
"""The reasoning behind all tool calls goes back to whoever gave it, not the newest alone."""
WITHOUT_THOUGHTS = "without_thoughts"
"""Reasoning and a vendor's own fields stay at home."""
FLAT = "flat"
"""The whole conversation is one text before the question."""
USER_LAST = "user_last"
"""What is asked ends with a user's message or a tool's result, never with an answer."""
ONE_SYSTEM_MESSAGE = "one_system_message"
"""System messages are joined into one."""
SYSTEM_AS_USER = "system_as_user"
"""What the system messages say stands at the beginning of the first user's message."""

NO_OUTPUT = "[The tool returned nothing.]"
NO_ANSWER = "[No answer was recorded.]"
NO_WORDS = "[Calls a tool.]"
BEFORE = "[The conversation begins earlier; what was said before is not part of this request.]"
_ANSWERED = "[You have answered so far:]\n{text}\n[End of what you have answered.]"
_GO_ON = "Go on from there."
_TRANSCRIPT = "[The conversation so far, as a transcript:]"
_END_OF_TRANSCRIPT = "[End of the transcript.]"

LONGEST_ID = 40
STRICT_ID = re.compile(r"[A-Za-z0-9]{9}")
_ID = re.compile(rf"[\x21-\x7e]{{1,{LONGEST_ID}}}")
_NAME = re.compile(r"[\s<|\\/>]+")
LONGEST_NAME = 64
_CALL_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}")
_NO_CALL_NAME = re.compile(r"[^A-Za-z0-9_-]+")
NO_NAME = "unnamed"
"""Stands for the name of a call that has none."""
# Part types that the two wires carry; a text in any other part is sent as text.
_PARTS = {
    "user": {"text", "image_url", "input_audio", "file", "input_image", "input_file"},
    "assistant": {"text", "refusal"},
    "tool": {"text", "image_url", "input_image"},
    "system": {"text"},
}
_OWN_KEYS = ("vendor", "reasoning_content", REASONING_ITEMS)

# A message as it goes out, and the index of the one that it was made of; None where it was made up.
Sourced = tuple[WireMessage, int | None]


def outgoing(
    messages: Sequence[WireMessage],
    adaptations: Container[str] = frozenset(),
    *,
    tools: Container[str] = frozenset(),
) -> list[Sourced]:
    """Return the messages as servers take them, each with the index that it came from.

    Always: calls and results paired, arguments JSON objects, no blank contents, ids of at most 40
    printable characters, known parts, and names of calls of letters and digits: models make some
    up. `tools` are the names that the request declares, which stay as they are. `adaptations` are
    codes of this module.
    """
    sent = strict_with_sources([_named(message) for message in messages])
    sent = [(_readable(message, tools), source) for message, source in sent]
    if WITHOUT_THOUGHTS in adaptations:
        sent = [(_without(message, _OWN_KEYS), source) for message, source in sent]
    if TEXTS_ONLY in adaptations:
        sent = [({**one, "content": plain_content(one.get("content"))}, at) for one, at in sent]
    if TEXTS_ONLY in adaptations or TEXT_BESIDE_CALLS in adaptations:
        sent = [(_with_words(message), source) for message, source in sent]
    if FLAT in adaptations:
        sent = _flat(sent)
        return _without_system_role(sent) if SYSTEM_AS_USER in adaptations else sent
    if TOOLS_AS_TEXT in adaptations:
        told = flattened([message for message, _ in sent])
        sent = [(message, source) for message, (_, source) in zip(told, sent, strict=True)]
    if USER_LAST in adaptations:
        sent = _ending_with_a_question(sent)
    sent = _with_ids(sent, _strict_id if STRICT_IDS in adaptations else _short_id)
    if ONE_SYSTEM_MESSAGE in adaptations or ALTERNATING_ROLES in adaptations:
        sent = _with_one_system_message(sent)
    if SYSTEM_AS_USER in adaptations:
        sent = _without_system_role(sent)
    return _alternating(sent) if ALTERNATING_ROLES in adaptations else sent


# --- one message ----------------------------------------------------------------------------------


def _named(message: WireMessage) -> WireMessage:
    """Return a message whose name every server takes: no blanks, no brackets, not too long."""
    name = message.get("name")
    if not name:
        return message
    return {**message, "name": _NAME.sub("_", name)[:LONGEST_NAME]}


def _readable(message: WireMessage, tools: Container[str]) -> WireMessage:
    """Return a message with contents that are not blank, known parts, and calls as servers take."""
    content = _content(message.get("content"), message["role"])
    if message["role"] == "tool" and is_blank(content):
        content = NO_OUTPUT
    calls = message.get("tool_calls")
    readable: WireMessage = {**message, "content": content}
    if calls:
        readable["tool_calls"] = [_with_object(call, tools) for call in calls]
        if is_blank(content):
            readable["content"] = None
    return readable


def _content(content: Any, role: str) -> Any:
    if not isinstance(content, list):
        return content
    known = _PARTS.get(role, _PARTS["system"])
    parts = [_part(part, known) for part in content if isinstance(part, Mapping)]
    return [part for part in parts if not _is_blank_text(part)] or ""


def _part(part: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    kind = str(part.get("type") or "part")
    if kind in known and kind != "text":
        return dict(part)
    text = part.get("text")
    if isinstance(text, str):
        kept = dict(part) if kind == "text" else {}
        return {**kept, "type": "text", "text": text}
    return {"type": "text", "text": _named_part(part)}


def _named_part(part: Mapping[str, Any]) -> str:
    """Return what stands for a part that is not sent: its kind and its name."""
    kind = str(part.get("type") or "part").removeprefix("input_").removesuffix("_url")
    inside = part.get(str(part.get("type")))
    name = inside.get("filename") if isinstance(inside, Mapping) else part.get("filename")
    name = " ".join(str(name).split())[:LONGEST_NAME] if name else ""
    return f"[{kind}{f' {name}' if name else ''} not sent]"


def _is_blank_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not str(part.get("text") or "").strip()


def is_blank(content: Any) -> bool:
    """Whether a content holds nothing that could be read: no text but blanks, and no other part."""
    if isinstance(content, list):
        return all(isinstance(part, Mapping) and _is_blank_text(part) for part in content)
    return not isinstance(content, str) or not content.strip()


def plain_content(content: Any) -> Any:
    """Return a content as one text, with the names of the parts that are none."""
    if not isinstance(content, list):
        return content
    texts = [
        part["text"] if isinstance(part.get("text"), str) else _named_part(part) for part in content
    ]
    return "\n".join(texts)


def _with_words(message: WireMessage) -> WireMessage:
    """Return a message whose content is no null, also where nothing stands beside its calls."""
    says_nothing = bool(message.get("tool_calls")) and is_blank(message.get("content"))
    return {**message, "content": NO_WORDS} if says_nothing else message


def _with_object(call: Mapping[str, Any], tools: Container[str]) -> dict[str, Any]:
    function = call.get("function") or {}
    told = {"name": call_name(function.get("name"), tools)}
    told["arguments"] = arguments_object(function.get("arguments"))
    return {**call, "function": {**function, **told}}


def call_name(name: Any, tools: Container[str] = frozenset()) -> str:
    """Return a call's name as every server takes it: itself where the request declares it.

    Else what is neither letter, digit, hyphen nor underscore becomes an underscore.
    """
    given = str(name or "")
    if given in tools or _CALL_NAME.fullmatch(given):
        return given
    return _NO_CALL_NAME.sub("_", given)[:LONGEST_NAME].strip("_") or NO_NAME


def arguments_object(arguments: Any) -> str:
    """Return a call's arguments as the text of a JSON object: the text itself where it is one.

    Nothing becomes {}. Another value is wrapped as {"value": …}, a text that is cut off or no JSON
    as {"unreadable_arguments": text}, so that nothing of it is lost.
    """
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    if not arguments.strip():
        return "{}"
    try:
        value = json.loads(arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps({"unreadable_arguments": arguments}, ensure_ascii=False)
    if isinstance(value, dict):
        return str(arguments)
    # As it was written: half of a character's pair can be sent escaped alone.
    return f'{{"value": {arguments.strip()}}}'


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON.")


def _without(message: WireMessage, keys: Container[str]) -> WireMessage:
    return cast(WireMessage, {key: value for key, value in message.items() if key not in keys})


# --- ids ------------------------------------------------------------------------------------------


def _with_ids(sent: Sequence[Sourced], to_id: Callable[[str], str]) -> list[Sourced]:
    """Return the messages with ids that `to_id` chose: the same one for a call and its result."""
    chosen: dict[str, str] = {}
    taken: set[str] = set()

    def choose(given: str) -> str:
        if given not in chosen:
            number, made = 0, to_id(given)
            while made in taken:
                number += 1
                made = to_id(f"{given} {number}")
            taken.add(made)
            chosen[given] = made
        return chosen[given]

    out: list[Sourced] = []
    for message, source in sent:
        if message.get("tool_calls"):
            calls = [{**call, "id": choose(call["id"])} for call in message["tool_calls"]]
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            message = {**message, "tool_call_id": choose(message["tool_call_id"])}
        out.append((message, source))
    return out


def _short_id(given: str) -> str:
    return given if _ID.fullmatch(given) else f"call_{_hash(given)[:24]}"


def _strict_id(given: str) -> str:
    return given if STRICT_ID.fullmatch(given) else _hash(given)[:9]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- the order of roles ---------------------------------------------------------------------------


def _with_one_system_message(sent: Sequence[Sourced]) -> list[Sourced]:
    front = [message for message, _ in sent if message["role"] == "system"]
    if len(front) < 2:
        return list(sent)
    text = "\n\n".join(text_of(message.get("content")) for message in front)
    joined: WireMessage = {"role": "system", "content": text}
    return [(joined, sent[0][1]), *(one for one in sent if one[0]["role"] != "system")]


def _without_system_role(sent: Sequence[Sourced]) -> list[Sourced]:
    joined = _with_one_system_message(sent)
    if not joined or joined[0][0]["role"] != "system":
        return joined
    (system, source), rest = joined[0], joined[1:]
    note = _user(text_of(system.get("content")))
    if not rest or rest[0][0]["role"] != "user":
        return [(note, source), *rest]
    question, place = rest[0]
    return [({**question, "content": _joined(note, question)}, place), *rest[1:]]


def _alternating(sent: Sequence[Sourced]) -> list[Sourced]:
    """Return the messages so that user and assistant take turns: neighbours of one role are joined.

    Where nothing was said between, the shortest honest text stands there.
    """
    out: list[Sourced] = []
    # Who spoke last, messages with calls and results left out, as chat templates count.
    last = ""
    for message, source in sent:
        role = message["role"]
        before = out[-1][0] if out else None
        if role in ("system", "tool"):
            out.append((message, source))
        elif message.get("tool_calls"):
            if before is not None and _is_said_by(before, "assistant"):
                out.pop()
                message = {**message, "content": _joined(before, message)}
                last = "user"
            elif not last:
                out.append((_user(BEFORE), None))
                last = "user"
            out.append((message, source))
        elif before is not None and _is_said_by(before, role):
            out[-1] = ({**before, "content": _joined(before, message)}, out[-1][1])
        else:
            if role == last or (role == "assistant" and not last):
                made_up = _user(BEFORE) if role == "assistant" else _assistant(NO_ANSWER)
                out.append((made_up, None))
            out.append((message, source))
            last = role
    return out


def _is_said_by(message: WireMessage, role: str) -> bool:
    return message["role"] == role and not message.get("tool_calls")


def _joined(first: WireMessage, second: WireMessage) -> Any:
    """Return both contents as one: a text, or a list of parts where one of them is a list."""
    contents = [one.get("content") for one in (first, second) if not is_blank(one.get("content"))]
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    parts: list[Any] = []
    for content in contents:
        parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
    return parts


def _user(text: str) -> WireMessage:
    return {"role": "user", "content": text}


def _assistant(text: str) -> WireMessage:
    return {"role": "assistant", "content": text}


def _ending_with_a_question(sent: Sequence[Sourced]) -> list[Sourced]:
    """Return the messages with what was answered last as text before the question that it answers.

    Behind a tool's result there is none: then the user's word is to go on.
    """
    end = len(sent)
    while end and _is_said_by(sent[end - 1][0], "assistant"):
        end -= 1
    said = [text_of(plain_content(message.get("content"))) for message, _ in sent[end:]]
    if not said or not end:
        return list(sent)
    note = _user(_ANSWERED.format(text="\n\n".join(said)))
    question, source = sent[end - 1]
    if question["role"] == "user":
        return [*sent[: end - 1], ({**question, "content": _joined(note, question)}, source)]
    return [*sent[:end], (_user(f"{note['content']}\n\n{_GO_ON}"), sent[-1][1])]


# --- the last step --------------------------------------------------------------------------------


def _flat(sent: Sequence[Sourced]) -> list[Sourced]:
    """Return one system message and one user's: a transcript, and behind it what was said last."""
    front = [one for one in _with_one_system_message(sent) if one[0]["role"] == "system"]
    told = flattened([message for message, _ in sent if message["role"] != "system"])
    rest = [
        (message, source)
        for message, source in zip(
            told, (source for one, source in sent if one["role"] != "system"), strict=True
        )
    ]
    if not rest:
        return front
    (question, source), earlier = rest[-1], rest[:-1]
    if question["role"] != "user":
        earlier, question = rest, _user(_GO_ON)
    if not earlier:
        return [*front, (question, source)]
    lines = [_TRANSCRIPT, *(_line(message) for message, _ in earlier), _END_OF_TRANSCRIPT]
    content = _joined(_user("\n".join(lines)), question)
    return [*front, ({"role": "user", "content": content}, source)]


def _line(message: WireMessage) -> str:
    """Return a message in a transcript: what it says is indented, so that it forges no role."""
    text = text_of(plain_content(message.get("content"))).strip()
    indented = "\n".join(f"    {line}" for line in text.splitlines())
    return f"[{message['role']}]\n{indented}"

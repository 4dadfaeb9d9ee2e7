"""SWE-agent's trajectories: one run of an agent, of which the `history` holds the messages.

The `trajectory` beside it says the same step by step, often with a copy of the whole prompt each,
and is not read. Older runs have no tool calls: there an observation is a user's message.
"""

from __future__ import annotations

import json
from typing import Any

from chatapp.formats.answers import chained
from chatapp.formats.message_shelf import Keep
from chatapp.formats.openai_messages import check_message
from chatapp.formats.reading import DamagedError, Document, Wire, digest, texts_of
from chatapp.formats.records import Conversation, ImportedMessage, ParsedFile, Problem
from chatapp.formats.registry import Format
from chatapp.formats.trees import items_of, read_all

NAME = "swe_agent"
MAIN = "main"
"""What a run is called that has no name of its own."""


def recognises(document: Document) -> bool:
    """Whether the file holds a run: a history of messages, and the trajectory beside it."""
    return any(_is_run(value) for _, value in items_of(document))


def _is_run(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("trajectory"), list):
        return False
    history = value.get("history")
    return isinstance(history, list) and any(
        isinstance(item, dict) and "role" in item for item in history
    )


def parse(document: Document) -> ParsedFile:
    """The runs of the file; messages that cannot be read are left out and told."""
    return read_all(document, name=NAME, holds=_is_run, read=_conversation)


def _conversation(value: Wire, line: int, problems: list[Problem], keep: Keep) -> Conversation:
    read: list[ImportedMessage] = []
    for place, item in enumerate(value["history"], start=1):
        try:
            read.append(keep(_message(item, place, line, problems)))
        except DamagedError as error:
            text = f"Message {place} was left out: {error}."
            problems.append(Problem(line=line, text=text))
    prompt = _system_prompt(read)
    messages = chained(read[1:] if prompt else read)
    name = value.get("environment")
    name = name if isinstance(name, str) and name != MAIN else ""
    return Conversation(
        format=NAME,
        identity=_identity(name, messages),
        title=name,
        messages=messages,
        leaf=messages[-1].key if messages else None,
        system_prompt=prompt,
        model=_model(value),
        metadata=_outcome(value.get("info")),
    )


def _message(value: Any, place: int, line: int, problems: list[Problem]) -> ImportedMessage:
    """The message in its wire form; a demonstration is sent, though nobody said it."""
    if not isinstance(value, dict):
        return ImportedMessage(key="", parent=None, wire=check_message(value).wire)
    known = {key: value[key] for key in ("role", "content", "tool_calls", "name") if key in value}
    known["content"] = _content(value.get("content"))
    if value.get("role") == "tool":
        ids = value.get("tool_call_ids")
        answered = ids[0] if isinstance(ids, list) and ids else value.get("tool_call_id")
        known["tool_call_id"] = answered if isinstance(answered, str) else ""
    checked = check_message(known)
    for text in checked.mended:
        problems.append(Problem(line=line, text=f"Message {place} was mended: {text}."))
    blocks = value.get("thinking_blocks")
    is_demo = value.get("is_demo") is True and checked.wire["role"] == "user"
    return ImportedMessage(
        key="",
        parent=None,
        wire=checked.wire,
        kind="note" if is_demo else "message",
        reasoning=checked.reasoning or _thoughts(blocks),
        metadata={"type": "demonstration"} if is_demo else {},
    )


def _content(value: Any) -> Any:
    """A list of nothing but texts as one text: so a result reads as it was printed."""
    if isinstance(value, list) and value and all(map(_is_text, value)):
        return "".join(part["text"] for part in value)
    return value


def _is_text(part: Any) -> bool:
    return (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def _thoughts(blocks: Any) -> str:
    return texts_of(blocks, kind="thinking", key="thinking") if isinstance(blocks, list) else ""


def _system_prompt(messages: list[ImportedMessage]) -> str:
    first = messages[0].wire if messages else {}
    content = first.get("content")
    return content if first.get("role") == "system" and isinstance(content, str) else ""


def _identity(name: str, messages: tuple[ImportedMessage, ...]) -> str:
    """The task and the first answer: with them two runs of one task are told apart."""
    asked = next((one.wire for one in messages if one.wire["role"] == "user"), None)
    answered = next((one.wire for one in messages if one.wire["role"] == "assistant"), None)
    return f"{NAME}:{digest(name, asked, answered)}"


def _model(value: Wire) -> str:
    """The model that the run's settings name: an object, or a text of JSON."""
    found = value.get("replay_config")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            return ""
    for key in ("agent", "model", "name"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _outcome(info: Any) -> dict[str, Any]:
    """How the run ended, and what it took."""
    if not isinstance(info, dict):
        return {}
    kept = ("exit_status", "model_stats", "swe_agent_version")
    return {key: info[key] for key in kept if isinstance(info.get(key), str | dict)}


FORMAT = Format(
    name=NAME,
    label="SWE-agent trajectories (JSON)",
    endings=(".json", ".traj"),
    recognises=recognises,
    parse=parse,
)

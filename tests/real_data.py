"""Real conversations that nobody here wrote, read from the folder beside the checkout.

Formats that can be imported are read by the importers themselves; the others by a few lines here.
No text of them may be committed: tests refer to it by name, message and offsets.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from chatapp.formats.records import Conversation, visible_line
from chatapp.formats.registry import parse
from compaction.engine.types import Item, ToolCall

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
ABSENT = "The folder shared/data is not beside the checkout: real conversations are left out."
"""The reason to skip, and what a benchmark prints."""

STEP = 1_000_000
SCENARIOS = ("customer", "finance", "notetaker")
# Of some prefixes, one that parts every kind about evenly.
SALT = "share "
# Several files of one session: what is tuned on one must not be checked on the next.
SAME_SESSION = ("e12c3e2b3f2a", "b8659b3a4dd4", "4b7d5121b42a")
_TRIAL = re.compile(r"-trial\d+$")
_UNDER_LANGUAGE = re.compile(r"^memorybank/(?:cn|en)/")

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealConversation:
    """One conversation; `kind` is memory, chat, agent or service, and messages are OpenAI's.

    A message has role and content (a text), and where it applies tool_calls, tool_call_id and
    tool_name.
    """

    name: str
    language: str
    kind: str
    messages: tuple[Message, ...] = field(repr=False)


def is_there() -> bool:
    """Whether the data can be read."""
    return DATA.is_dir()


def conversations() -> list[RealConversation]:
    """Return all conversations that have a question and more, by name; none without the folder."""
    return list(_conversations())


def conversation(name: str) -> RealConversation:
    """Return the conversation of that name; raise KeyError where there is none."""
    for one in _conversations():
        if one.name == name:
            return one
    raise KeyError(f"There is no conversation {name!r} in the data.")


def split(name: str) -> str:
    """Return whether a conversation is for tuning (`tune`) or for checking (`hold`).

    Trials of one task, one persona in two languages and slices of one session stay together.
    """
    drawn = hashlib.sha256(f"{SALT}{_family(name)}".encode()).digest()[0]
    return "hold" if drawn & 1 else "tune"


def to_items(
    messages: Sequence[Mapping[str, Any]], count: Callable[[str], int] | None = None
) -> tuple[Item, ...]:
    """Return messages as the engine sees them; `id` is the index; tokens may be an estimate."""
    return tuple(
        Item(
            id=index,
            position=(index + 1) * STEP,
            role=message["role"],
            text=message["content"],
            tokens=(count or _estimate)(message["content"]) + 4,
            tool_calls=tuple(map(_tool_call, message.get("tool_calls") or ())),
            tool_call_id=message.get("tool_call_id") or "",
            tool_name=message.get("tool_name") or "",
        )
        for index, message in enumerate(messages)
    )


def scenario_items(scenario: str, count: Callable[[str], int] | None = None) -> tuple[Item, ...]:
    """Return all that the user of a memory scenario says, over all sessions."""
    return to_items(conversation(f"bfcl_memory/{scenario}").messages, count)


def questions(scenario: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Return a memory scenario's questions, each with its right answers and its source's words."""
    return [
        (row["question"][0][0]["content"], tuple(row["ground_truth"]), row["source"])
        for row in _lines(DATA / "bfcl_memory" / f"questions_{scenario}.jsonl")
    ]


def share_answered(text: str, asked: Sequence[tuple[str, tuple[str, ...], str]]) -> float:
    """Return the share of questions of which a text holds an answer, as whole words."""
    folded = text.casefold()
    return sum(any(_stands(one, folded) for one in answers) for _, answers, _ in asked) / len(asked)


def _stands(answer: str, folded: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer.casefold())}(?!\w)", folded) is not None


def _family(name: str) -> str:
    if any(part in name for part in SAME_SESSION):
        return SAME_SESSION[0]
    return _TRIAL.sub("", _UNDER_LANGUAGE.sub("memorybank/", name))


@lru_cache(maxsize=1)
def _conversations() -> tuple[RealConversation, ...]:
    if not is_there():
        return ()
    readers = (_memory, _memorybank, _oasst, _crosswoz, _imported, _swe_agent, _codex, _claude_ai)
    found = [one for reader in readers for one in reader() if len(one.messages) > 1]
    return tuple(sorted(found, key=lambda one: one.name))


# --- one reader for each folder -------------------------------------------------------------------


def _memory() -> Iterator[RealConversation]:
    for scenario in SCENARIOS:
        sessions = _lines(DATA / "bfcl_memory" / f"memory_{scenario}.jsonl")
        said = [message for session in sessions for turn in session["question"] for message in turn]
        yield _made(f"bfcl_memory/{scenario}", "en", "memory", said)


def _memorybank() -> Iterator[RealConversation]:
    for folder, language in (("cn", "zh"), ("en", "en")):
        people = _json(DATA / "memorybank" / f"memorybank_{folder}.json")
        for number, person in enumerate(people.values()):
            said = [
                {"role": role, "content": row[key]}
                for _, day in sorted(person["history"].items())
                for row in day
                for role, key in (("user", "query"), ("assistant", "response"))
            ]
            yield _made(f"memorybank/{folder}/{number:02d}", language, "memory", said)


def _oasst() -> Iterator[RealConversation]:
    """Of each tree the line that people ranked best, to its end."""
    for number, tree in enumerate(_lines(DATA / "oasst" / "en_trees_dev.jsonl")):
        node, said = tree["prompt"], list[Message]()
        while node is not None:
            role = "user" if node["role"] == "prompter" else "assistant"
            said.append({"role": role, "content": node["text"]})
            node = min(node["replies"], key=_rank_and_depth, default=None)
        yield _made(f"oasst/{number:02d}", tree["prompt"]["lang"], "chat", said)


def _rank_and_depth(node: Message) -> tuple[bool, int]:
    """Prefer what goes on, then what stands higher: a line of two messages says little."""
    return (not node["replies"], node.get("rank") or 0)


def _crosswoz() -> Iterator[RealConversation]:
    for name, dialogue in _json(DATA / "crosswoz" / "test_long20.json").items():
        said = [
            {"role": "user" if row["role"] == "usr" else "assistant", "content": row["content"]}
            for row in dialogue["messages"]
        ]
        yield _made(f"crosswoz/{name}", "zh", "service", said)


def _imported() -> Iterator[RealConversation]:
    for folder in ("openai_chat", "claude_code", "pi"):
        for path in sorted((DATA / folder).iterdir()):
            kind = "service" if path.name.startswith("tau") else "agent"
            found = parse(path.read_bytes(), name=path.name).conversations
            for number, one in enumerate(found):
                yield _made(_imported_name(path, one, number, len(found)), "en", kind, _line(one))


def _imported_name(path: Path, one: Conversation, number: int, count: int) -> str:
    stem = f"{path.parent.name}/{path.name.partition('.')[0]}"
    if "task_id" in one.metadata:
        return f"{stem}/task{one.metadata['task_id']:02d}-trial{one.metadata.get('trial', 0)}"
    return f"{stem}/{number:02d}" if count > 1 else stem


def _line(one: Conversation) -> Iterator[Message]:
    if one.system_prompt:
        yield {"role": "system", "content": one.system_prompt}
    yield from (message.wire for message in visible_line(one))


def _swe_agent() -> Iterator[RealConversation]:
    for path in sorted((DATA / "swe_agent").iterdir()):
        (one,) = parse(path.read_bytes(), name=path.name).conversations
        yield _made(f"swe_agent/{path.name.partition('.')[0]}", "en", "agent", _line(one))


def _codex() -> Iterator[RealConversation]:
    """The items of a rollout, without what the program put into the user's mouth."""
    for path in sorted((DATA / "codex").iterdir()):
        said: list[Message] = []
        for row in _lines(path):
            if row.get("type") == "response_item":
                said += _codex_messages(row["payload"])
        yield _made(f"codex/{path.name.partition('.')[0]}", "en", "agent", said)


def _codex_messages(item: Message) -> Iterator[Message]:
    kind = item.get("type", "message")
    if kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments") or item.get("input") or ""
        function = {"name": item["name"], "arguments": arguments}
        call = {"id": item["call_id"], "type": "function", "function": function}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield {"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]}
    elif kind == "message" and item["role"] in ("user", "assistant"):
        # What the program puts into the user's mouth begins with a tag.
        if item["role"] == "user" and _text(item["content"]).lstrip().startswith("<"):
            return
        yield {"role": item["role"], "content": item["content"]}


def _claude_ai() -> Iterator[RealConversation]:
    exported = _json(DATA / "claude_ai_export" / "claude_ai_export_mostly_blank.json")
    for number, one in enumerate(exported):
        said = [
            {"role": "user" if row["sender"] == "human" else "assistant", "content": row["text"]}
            for row in one["chat_messages"]
        ]
        yield _made(f"claude_ai_export/{number:02d}", "en", "chat", said)


# --- messages -------------------------------------------------------------------------------------


def _made(
    name: str, language: str, kind: str, said: Iterable[Mapping[str, Any]]
) -> RealConversation:
    """Return the conversation without messages that say nothing; results know their tool."""
    messages: list[Message] = []
    tools: dict[str, str] = {}
    for wire in said:
        message: Message = {"role": wire["role"], "content": _text(wire.get("content"))}
        if calls := wire.get("tool_calls"):
            message["tool_calls"] = calls
            # An id may be used again; the newest call is the one that is answered.
            tools |= {call["id"]: call["function"]["name"] for call in calls}
        if wire["role"] == "tool":
            message["tool_call_id"] = wire.get("tool_call_id") or ""
            message["tool_name"] = wire.get("name") or tools.get(message["tool_call_id"], "")
        if message["content"].strip() or calls or wire["role"] == "tool":
            messages.append(message)
    return RealConversation(name=name, language=language, kind=kind, messages=tuple(messages))


def _text(content: Any) -> str:
    """Return the text of a content, which may be a list of parts; "" where there is none."""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    return ToolCall(id=call["id"], name=function["name"], arguments=function["arguments"] or "")


def _estimate(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // 4


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())

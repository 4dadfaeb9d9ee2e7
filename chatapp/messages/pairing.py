"""Tool calls and their results: who answers whom, and requests that every server accepts.

A result belongs to the nearest earlier unanswered call of its id, whatever ids repeat
(docs/architecture.md#a-call-and-its-results-stay-together). Storage is never changed by anything
here: what is missing or misplaced is mended in the request only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chatapp.messages.wire import WireMessage

MISSING_RESULT = "[No result of this tool call was recorded.]"
_ORPHAN = "[Result of a tool call that is not part of this request{name}]\n"
_RESULT = "[Result of a tool call]\n"
_CALL = "[Called the tool {name} with {arguments}]"
_LATE_SYSTEM = "[System note]\n"

# (index of the assistant message, index of the call in it)
CallPlace = tuple[int, int]


def pair(places: Iterable[tuple[str | None, Sequence[str]]]) -> dict[int, CallPlace]:
    """Return {index of a result: the call it answers}; results without a call are left out.

    Each place of the conversation is (the id that it answers, or None where it is no result; the
    ids of the calls that it asks for).
    """
    # For each id its open calls, the one to be answered next at the end: those of the nearest
    # message, and of these the first.
    open_calls: dict[str, list[CallPlace]] = {}
    found: dict[int, CallPlace] = {}
    for index, (answered, asked) in enumerate(places):
        if answered is not None:
            waiting = open_calls.get(answered)
            if waiting:
                found[index] = waiting.pop()
        for number in range(len(asked) - 1, -1, -1):
            open_calls.setdefault(asked[number], []).append((index, number))
    return found


def answers(messages: Sequence[Mapping[str, Any]]) -> dict[int, CallPlace]:
    """Return the same for wire messages."""
    return pair(map(_ids, messages))


def parted(messages: Sequence[Mapping[str, Any]], cut: int) -> tuple[int, int] | None:
    """Return the first and the last index of what a cut before `messages[cut]` would part.

    That is a call and its results, with what came in between them, and other calls that overlap
    with it. None where the cut parts nothing.
    """
    spans = [(caller, index) for index, (caller, _) in answers(messages).items()]
    over = [span for span in spans if span[0] < cut <= span[1]]
    if not over:
        return None
    first, last = min(caller for caller, _ in over), max(index for _, index in over)
    for caller, index in sorted(spans, key=lambda span: span[1]):
        last = index if caller <= last < index else last
    for caller, index in sorted(spans, reverse=True):
        first = caller if caller < first <= index else first
    return first, last


def _ids(message: Mapping[str, Any]) -> tuple[str | None, Sequence[str]]:
    if message["role"] == "tool":
        return str(message.get("tool_call_id") or ""), ()
    return None, [str(call.get("id") or "") for call in _calls(message)]


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (message.get("tool_calls") or ()) if message["role"] == "assistant" else ()


def strict_with_sources(
    messages: Sequence[WireMessage], *, front: int | None = None
) -> list[tuple[WireMessage, int | None]]:
    """Return the messages as a strict OpenAI-compatible server takes them.

    Results stand right behind their calls, in the calls' order; a missing one is stated; one
    without a call becomes a user's text, so that its facts stay; ids that repeat are told apart;
    empty messages are left out; system messages after the front become notes. The front are the
    first `front` messages; None: the system messages that open the list. Each comes with the index
    it came from; None where it was made up.
    """
    placed = {place: index for index, place in answers(messages).items()}
    answering = set(placed.values())
    used: dict[str, int] = {}
    out: list[tuple[WireMessage, int | None]] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if index not in answering:
                out.append((_orphan(message), index))
        elif _calls(message):
            out += _call_and_results(index, messages, placed, used)
        elif not _is_empty(message):
            opens = not out or out[-1][0]["role"] == "system"
            at_front = opens and (front is None or index < front)
            out.append((_in_place(message, at_front=at_front), index))
    return out


def _in_place(message: WireMessage, *, at_front: bool) -> WireMessage:
    """Return a message without calls; a system message that comes late becomes a user's note.

    `developer` is sent as `system`, which every server knows.
    """
    content = message.get("content")
    if _holds_nothing(content):
        content = message["refusal"]
    if message["role"] not in ("system", "developer"):
        return {**message, "content": content}
    if at_front:
        return {**message, "role": "system", "content": content}
    return {"role": "user", "content": _prefixed(_LATE_SYSTEM, content)}


def _call_and_results(
    index: int,
    messages: Sequence[WireMessage],
    placed: Mapping[CallPlace, int],
    used: dict[str, int],
) -> list[tuple[WireMessage, int | None]]:
    calls: list[dict[str, Any]] = []
    results: list[tuple[WireMessage, int | None]] = []
    for number, call in enumerate(messages[index]["tool_calls"]):
        call_id = _unique(str(call.get("id") or f"call_{index}_{number}"), used)
        calls.append({**call, "id": call_id})
        source = placed.get((index, number))
        content = MISSING_RESULT if source is None else messages[source].get("content")
        result: WireMessage = {
            "role": "tool",
            "tool_call_id": call_id,
            "content": content or "",
        }
        results.append((result, source))
    content = messages[index].get("content")
    content = None if _holds_nothing(content) else content
    return [({**messages[index], "content": content, "tool_calls": calls}, index), *results]


def _unique(call_id: str, used: dict[str, int]) -> str:
    """Return the id, or the id with the first free number where it was used before."""
    unique = call_id
    while unique in used:
        used[call_id] += 1
        unique = f"{call_id}-{used[call_id]}"
    used[unique] = 1
    return unique


def _orphan(message: WireMessage) -> WireMessage:
    name = f", {message['name']}" if message.get("name") else ""
    return {
        "role": "user",
        "content": _prefixed(_ORPHAN.format(name=name), message.get("content")),
    }


def flattened(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """Return strict messages with calls and results as plain text, one for one.

    For servers that refuse even what is paired: nothing is lost, and nothing is left to pair.
    """
    out: list[WireMessage] = []
    for message in messages:
        if message["role"] == "tool":
            out.append({"role": "user", "content": _prefixed(_RESULT, message.get("content"))})
        elif _calls(message):
            functions = [call["function"] for call in _calls(message)]
            said = [str(message["content"])] if message.get("content") else []
            asked = [_CALL.format(**function) for function in functions]
            out.append({"role": "assistant", "content": "\n".join([*said, *asked])})
        else:
            out.append(message)
    return out


def _prefixed(prefix: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": prefix}, *content]
    return f"{prefix}{content or ''}"


def _is_empty(message: WireMessage) -> bool:
    return _holds_nothing(message.get("content")) and not message.get("refusal")


def _holds_nothing(content: Any) -> bool:
    """Whether a content is empty or blank: servers refuse the one like the other."""
    if isinstance(content, list):
        return not any(part.get("type") != "text" or _says(part.get("text")) for part in content)
    return not _says(content)


def _says(text: Any) -> bool:
    return bool(text.strip() if isinstance(text, str) else text)

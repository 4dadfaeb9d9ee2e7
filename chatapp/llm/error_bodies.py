"""What a server's error body says, and nothing that it quotes.

Only the error's own fields are read: its messages, codes, types and numbers. Validation errors
carry the request back (`input`, `ctx`, `failed_generation`); a conversation about context windows
must not be taken for a full one (spec/pi_openclaw.md D20), so such fields are never looked at.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# Enough for every error of the specification; the rest of a long page says nothing new.
MAX_CHARS = 20_000
_MAX_DEPTH = 6
_MAX_ENTRIES = 20

_NAME_KEYS = ("code", "type", "status", "error_type", "__type", "reason")
_TEXT_KEYS = ("message", "Message", "msg", "detail", "error_description", "raw")
_NESTED_KEYS = ("error", "errors", "innererror", "inner_error", "metadata", "details")
_NUMBER_KEYS = ("n_prompt_tokens", "n_ctx")

_TAG = re.compile(r"<(?:style|script)\b.*?</(?:style|script)>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LEADING_STATUS = re.compile(r"(?:error code:? ?|http(?:/\S+)? ?)?([45]\d\d)\b", re.IGNORECASE)
# Pydantic's way of quoting the request, as a text and in a dump that is cut off.
_QUOTED_INPUT = re.compile(
    r"\binput_value=.*?(?=, input_type=|$)|['\"](?:input|ctx|body)['\"]\s*:.*", re.DOTALL
)
_DURATION = re.compile(
    r"\b(?:try again|retry|wait)(?:ing)?(?: in| after| for)? "
    r"(?:(\d+) ?m(?!s)(?:in(?:ute)?s?)? ?)?(?:(\d+(?:\.\d+)?) ?(ms|s))?",
    re.IGNORECASE,
)


@dataclass(slots=True, kw_only=True)
class Said:
    """What an error says. `status` is the HTTP status or, under 200, the one that the body names.

    `names` are the lower-case codes and types, `code` the first of them as it came, `param` the
    place in the request, `numbers` the error's numeric fields, `retry_after` seconds. `text` is for
    people, `words` the same for patterns: lower-case, each run of blanks one space. `is_empty` is
    an answer without any body at all.
    """

    status: int | None
    names: list[str] = field(default_factory=list)
    code: str = ""
    param: str = ""
    texts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    retry_after: float | None = None
    is_empty: bool = False

    @property
    def text(self) -> str:
        """The error's own text."""
        return " ".join(self.texts)

    @property
    def words(self) -> str:
        """The text as patterns want it: without the marks around names, too."""
        return " ".join(self.text.lower().replace("\u2019", "'").replace("`", "").split())


def read(body: Any, *, status: int | None) -> Said:
    """Return what an error body says: an object, a list of one (Gemini), a text or a page."""
    said = Said(status=status)
    if body is None or (isinstance(body, str) and not body.strip()):
        said.is_empty = True
    elif isinstance(body, str):
        _read_text(body, said, 0)
    else:
        _read_node(body, said, 0)
    if status is None or status < 400:
        said.status = _named_status(said) or status
    if said.retry_after is None:
        said.retry_after = _retry_after(said.words)
    return said


def _read_node(node: Any, said: Said, depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, list | tuple):
        for entry in node[:_MAX_ENTRIES]:
            _read_node(entry, said, depth + 1)
    elif isinstance(node, Mapping):
        _read_fields(node, said)
        for key in _TEXT_KEYS:
            _read_message(node.get(key), said, depth)
        for key in _NESTED_KEYS:
            _read_message(node.get(key), said, depth)


def _read_message(value: Any, said: Said, depth: int) -> None:
    if isinstance(value, str):
        _read_text(value, said, depth + 1)
    else:
        _read_node(value, said, depth + 1)


def _read_fields(node: Mapping[Any, Any], said: Said) -> None:
    for key in _NAME_KEYS:
        value = node.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value:
            said.names.append(str(value).lower()[:200])
            if key in ("code", "type", "status") and not (said.code or value == "error"):
                said.code = str(value)
    place = node.get("param") or node.get("loc")
    if isinstance(place, list | tuple):
        place = ".".join(map(str, place))
    if isinstance(place, str) and not said.param:
        said.param = place.lower()[:200]
    for key in _NUMBER_KEYS:
        if isinstance(number := node.get(key), int) and not isinstance(number, bool):
            said.numbers.setdefault(key, number)
    delay = node.get("retryDelay")  # Google's RetryInfo: "37s"
    if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
        said.retry_after = float(delay[:-1])


def _read_text(text: str, said: Said, depth: int) -> None:
    """Take a text in; a JSON object inside it (a proxy's upstream error) is read as one."""
    text = text[:MAX_CHARS].strip()
    if text.startswith("<"):
        text = _TAG.sub(" ", text)
    start = re.search(r"\{|\[\s*\{", text)
    inner, rest = _parsed(text[start.start() :]) if start else (None, "")
    if start and inner is not None:
        text = f"{text[: start.start()].rstrip(' -:')} {rest}"
    if text := " ".join(_QUOTED_INPUT.sub(" ", text).split()):
        said.texts.append(text)
    if inner is not None:
        _read_node(inner, said, depth + 1)


def _parsed(text: str) -> tuple[Any, str]:
    """Return the object that a text begins with and the text behind it; None where there is none.

    It may be JSON, or the way Python prints an object.
    """
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        end = text.rfind("}" if text[0] == "{" else "]") + 1
        try:
            value = ast.literal_eval(text[:end])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None, ""
    return value, text[end:]


def _named_status(said: Said) -> int | None:
    """Return the HTTP status that a body or a text names, where the answer itself has none."""
    named: Iterator[str] = (name for name in said.names if re.fullmatch(r"[45]\d\d", name))
    if name := next(named, ""):
        return int(name)
    found = _LEADING_STATUS.match(said.words)
    return int(found[1]) if found else None


def _retry_after(words: str) -> float | None:
    """Return the seconds after which the text asks to come back, or None."""
    for found in _DURATION.finditer(words):
        minutes, amount, unit = found.groups()
        if minutes or amount:
            # No more digits than a wait can have: a text may hold thousands.
            seconds = float((amount or "0")[:12]) / (1000 if unit == "ms" else 1)
            return 60 * int((minutes or "0")[:6]) + seconds
    return None

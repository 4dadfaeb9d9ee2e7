"""Error bodies of many servers, read into one shape: code, type, text and the numbers in them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chatapp.llm.cut_json import read_cut
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.growing_text import is_json
from chatapp.messages.patterns import lazy_pattern

# Enough for every error of the specification; the rest of a long page says nothing new.
MAX_CHARS = 20_000
_MAX_DEPTH = 6
_MAX_ENTRIES = 20

_NAME_KEYS = (
    "code", "type", "status", "error_type", "__type", "reason", "statusCode", "status_code",
    "blockReason",
)  # fmt: skip
# Where the place in the request stands, in the words of several validators.
_PLACE_KEYS = ("param", "loc", "path", "pointer", "instancePath", "field")
_ADDRESS = re.compile(r"(?i)completions|responses|://")
_TEXT_KEYS = (
    "message",
    "Message",
    "msg",
    "detail",
    "error_description",
    "raw",
    "status_msg",
    "description",
    "issue",
)
_NESTED_KEYS = (
    "error", "errors", "innererror", "inner_error", "metadata", "details", "base_resp",
    "promptFeedback", "violations", "fieldViolations", "issues", "invalid_params",
)  # fmt: skip
_ERROR_KEYS = frozenset({*_NAME_KEYS, *_TEXT_KEYS, *_NESTED_KEYS})
_NUMBER_KEYS = ("n_prompt_tokens", "n_ctx")

# Names of texts in bodies of a form that nobody knows: faultString, errorMessage, description.
_SPEAKING = lazy_pattern(
    r"message(?!s$)|msg|err|fault|desc|detail|reason|title|cause|exception", re.IGNORECASE
)
_TAG = lazy_pattern(r"<(?:style|script)\b.*?</(?:style|script)>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_LEADING_STATUS = lazy_pattern(r"(?:error code:? ?|http(?:/\S+)? ?)?([45]\d\d)\b", re.IGNORECASE)
# Pydantic's way of quoting the request, as a text and in a dump that is cut off.
_QUOTED_INPUT = lazy_pattern(
    r"\binput_value=.*?(?=, input_type=|$)|['\"](?:input|ctx|body)['\"]\s*:.*|, value: ['\"].*",
    re.DOTALL,
)
_DURATION = lazy_pattern(
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

    def is_named(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern is found in one of the codes and types."""
        return any(pattern.search(name) for name in self.names)


def read(body: Any, *, status: int | None) -> Said:
    """Return what an error body says: an object, a list of one (Gemini), a text or a page."""
    said = Said(status=status)
    if body is None or (isinstance(body, str) and not body.strip()):
        said.is_empty = True
    elif not isinstance(body, str):
        _read_whole(body, said)
    elif (begun := read_cut(body)) and not is_json(body):
        # One that was too long, or that broke off.
        _read_whole(begun, said)
    if isinstance(body, str) and not said.texts:
        _read_text(body, said, 0)
    if status is None or status < 400:
        said.status = _named_status(said) or status
    if said.retry_after is None:
        said.retry_after = _retry_after(said.words)
    return said


def _read_whole(body: Any, said: Said) -> None:
    _read_node(body, said, 0)
    if not said.texts:
        # Under names that nobody knows: an API gateway's own, another language's.
        said.texts.extend(_told(body, 0))


def _read_node(node: Any, said: Said, depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, list | tuple):
        for entry in node[:_MAX_ENTRIES]:
            _read_message(entry, said, depth)
    elif isinstance(node, Mapping):
        _read_fields(node, said)
        for key in _TEXT_KEYS:
            _read_message(node.get(key), said, depth)
        for key in (*_NESTED_KEYS, *_wrapped_in(node)):
            _read_message(node.get(key), said, depth)


def _told(node: Any, depth: int, *, tells: bool = False) -> Iterator[str]:
    """Yield the texts under names that speak of an error; what an error quotes is not judged."""
    if isinstance(node, str):
        if tells:
            yield node[:MAX_CHARS]
    elif depth <= _MAX_DEPTH and isinstance(node, Mapping):
        for key, value in list(node.items())[:_MAX_ENTRIES]:
            if key not in _NAME_KEYS:
                speaks = bool(_SPEAKING.search(str(key)[:100]))
                yield from _told(value, depth + 1, tells=speaks)
    elif depth <= _MAX_DEPTH and isinstance(node, list | tuple):
        for value in node[:_MAX_ENTRIES]:
            yield from _told(value, depth + 1, tells=tells)


def _wrapped_in(node: Mapping[Any, Any]) -> list[Any]:
    """Return the keys under which a gateway hands on its model's error: external_model_error."""
    return [
        key
        for key, value in list(node.items())[:_MAX_ENTRIES]
        if isinstance(value, Mapping) and "error" in str(key).lower() and key not in _NESTED_KEYS
    ]


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
    place = next((node[key] for key in _PLACE_KEYS if node.get(key)), None)
    if isinstance(place, list | tuple):
        place = ".".join(map(str, place))
    if isinstance(place, str) and not said.param and not _ADDRESS.search(place[:200]):
        # JSONPath and JSON pointers, too: $.messages[0].role, /messages/0/role.
        said.param = place.lower()[:200].lstrip("$./#").replace("/", ".")
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
        text = f"{text[: start.start()].rstrip(' -:')} {_names_in(inner)} {rest}"
    if text := " ".join(_QUOTED_INPUT.sub(" ", text).split()):
        said.texts.append(text)
    if inner is not None:
        _read_node(inner, said, depth + 1)


def _names_in(value: Any) -> str:
    """Return the names in an object that is no error: "does not support {'top_k': 1}"."""
    if not isinstance(value, Mapping) or any(key in _ERROR_KEYS for key in value):
        return ""
    return " ".join(str(key)[:40] for key in list(value)[:_MAX_ENTRIES])


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


_NUMBER = r"((?<![\d.])(?:\d{1,3}(?:[,_' ]\d{3})+(?!\d)|\d+)(?:[km]\b)?)"
_SCALE = {"k": 1_000, "m": 1_000_000}


def _compiled(*templates: str) -> tuple[re.Pattern[str], ...]:
    return tuple(lazy_pattern(template.replace("#", _NUMBER)) for template in templates)


_OF = r"(?: is| of|:)?(?: only)? \(?"
_ALLOWED_TOKENS = _compiled(
    rf"maximum (?:model |allowed |context |prompt |input |sequence )*(?:length|window|size){_OF}#",
    r"# maximum",
    rf"maximum number of (?:input )?tokens(?: allowed)?{_OF}#",
    rf"context length{_OF}#",
    r"\bn_ctx\W{1,3}#",
    r"context (?:window|size|limit)(?: is| of)? (?:# tokens|\(# tokens)",
    r"context window of #",
    r"\bmax_(?:seq|model|prompt)_len(?:gth)? ?\(?#",
    r"must have less than #",
    r"only supports up to #",
    r"max length is #",
    r"range of input length should be \[\d+, ?#",
    r"<= ?#",
    r">=? ?#",
    r"(?:must be less than|cannot exceed|model maximum)(?: of)? \(?#",
    r"\blimit(?: is| of|:)? #",
    r"\bmax(?:imum)?(?: size| tokens| length| prefill tokens| input tokens| context)?"
    r"(?: is| of|:)? \(?#",
    r"\bwindow(?: limit)?(?: of)? \(?#",
    r"\b(?:capacity|model_max_length) \(?#",
    r"# token limit",
)
# Several numbers in one pattern are added: the prompt and the room for the answer.
_OBSERVED_TOKENS = _compiled(
    r"# ?\+ ?#(?: tokens)? >",
    r"requested # output tokens.{0,80}contains (?:at least )?# ",
    r"given: # inputs tokens and # ",
    r"passed # input tokens and requested # output",
    r"given: #",
    r"too large: #\..{0,100}has # input tokens",
    r"total of (?:at least |about )?# ",
    r"requested(?: token count| tokens)?(?: a total of| about| up to| is|:)? \(?#",
    r"resulted in #",
    r"too (?:long|large): #",
    r"# (?:input |prompt )?tokens? >",
    r"token count(?: of| is|:)? \(?#",
    r"_?tokens \(#\)",
    r"contains?(?: at least| about)? #",
    r"\bn_keep\W{1,3}#",
    r"\bfirst # tokens",
    r"\breceived #",
    r"\bhas # ",
    r"\(# tokens",
    r"\blength \(?#\)?",
)
_REQUESTED = _compiled(r"\brequested:? #")
_LIMIT = _compiled(r"\blimit:? #")
_ALLOWED_OUTPUT = _compiled(
    r"\[\d+, ?#\]",
    r"> #",
    r"(?:less than or equal to|<=|at most|up to) #",
    r"maximum(?: allowed)?(?: value| number of output tokens)?(?: is| of|:)? #",
    r"(?:limit of|no more than|lower than|less than|between \d{1,3} and) #",
)
_OBSERVED_OUTPUT = _compiled(r"# >", r"too large: #", r"\b(?:provided|got) #")
_ALLOWED_ENTRIES = _compiled(
    r"max(?:imum )?_?length(?: is| of|:)? #", r"(?:at most|maximum of|limit of) #"
)
_OBSERVED_ENTRIES = _compiled(r"with length #", r"\bactual:? #", r"\b(?:got|has) #")
_BYTES = r" ?(?:bytes|(mb|mib|kb|kib))"
_ALLOWED_BYTES = _compiled(rf"> #{_BYTES}", rf"(?:limit|maximum|max)\D{{0,30}}#{_BYTES}")
_OBSERVED_BYTES = _compiled(rf"#{_BYTES} >", rf"(?:got|received) #{_BYTES}")
_BYTE_SCALE = {None: 1, "kb": 1_000, "kib": 1_024, "mb": 1_000_000, "mib": 1_048_576}
_BELOW_MINIMUM = lazy_pattern(r"below minimum|at least|>= ?\d")
_MESSAGE = lazy_pattern(r"\b(?:messages|input)(?:\[|\.)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What an error names; the unit is the kind's. None is what it does not name."""

    observed: int | None = None
    allowed: int | None = None
    message_index: int | None = None


def numbers_of(kind: ErrorKind, said: Said) -> Numbers:
    """Return the numbers of an error whose kind is known."""
    words = said.words
    if kind is ErrorKind.CONTEXT_OVERFLOW:
        return _of_overflow(said)
    if kind is ErrorKind.REQUEST_OVER_RATE:
        requested, limit = rate_numbers(words)
        return Numbers(observed=requested, allowed=limit)
    if kind is ErrorKind.OUTPUT_LIMIT:
        return _of_output(words)
    if kind is ErrorKind.BODY_TOO_LARGE:
        return Numbers(
            observed=_bytes(_OBSERVED_BYTES, words), allowed=_bytes(_ALLOWED_BYTES, words)
        )
    if kind in (ErrorKind.TOO_MANY_MESSAGES, ErrorKind.MESSAGE_TOO_LONG):
        about_one = kind is ErrorKind.MESSAGE_TOO_LONG
        return Numbers(
            observed=_first(_OBSERVED_ENTRIES, words),
            allowed=_first(_ALLOWED_ENTRIES, words),
            message_index=_message_index(said) if about_one else None,
        )
    return Numbers(message_index=_message_index(said))


def _message_index(said: Said) -> int | None:
    """Return the place of the message that an error names in the request's list."""
    found = _MESSAGE.search(said.param) or _MESSAGE.search(said.words)
    return number(found[1]) if found else None


def rate_numbers(words: str) -> tuple[int | None, int | None]:
    """Return what a rate limit's text says was requested and is allowed."""
    return _first(_REQUESTED, words), _first(_LIMIT, words)


def _of_overflow(said: Said) -> Numbers:
    fields, words = said.numbers, said.words
    allowed = _match(_ALLOWED_TOKENS, words)
    observed = _match(_OBSERVED_TOKENS, words, apart_from=allowed)
    return Numbers(
        observed=fields.get("n_prompt_tokens") or _sum(observed),
        allowed=fields.get("n_ctx") or _sum(allowed),
    )


def _of_output(words: str) -> Numbers:
    if _BELOW_MINIMUM.search(words):
        return Numbers(observed=_first(_OBSERVED_OUTPUT, words))
    return Numbers(observed=_first(_OBSERVED_OUTPUT, words), allowed=_first(_ALLOWED_OUTPUT, words))


def _match(
    patterns: Iterable[re.Pattern[str]], words: str, apart_from: re.Match[str] | None = None
) -> re.Match[str] | None:
    """Return the first match whose number is not the one of `apart_from`."""
    taken = apart_from.span(_filled(apart_from)[0]) if apart_from else None
    for pattern in patterns:
        for found in pattern.finditer(words):
            if all(found.span(group) != taken for group in _filled(found)):
                return found
    return None


def _filled(found: re.Match[str]) -> list[int]:
    return [number for number, text in enumerate(found.groups(), 1) if text is not None]


def _first(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    return _sum(_match(patterns, words))


def _sum(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    return sum(number(text) for text in found.groups() if text is not None) or None


def _bytes(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    found = _match(patterns, words)
    return number(found[1]) * _BYTE_SCALE[found[2]] if found else None


def number(text: str) -> int:
    """Return a written number, with or without thousands separators, k or m."""
    scale = _SCALE.get(text[-1:], 1)
    digits = re.sub(r"\D", "", text)[:15]
    return int(digits or 0) * scale

"""Token counts: exact with tiktoken's file, else estimated; and what a server reports."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from chatapp.llm.encodings import (
    Chars4Counter,
    EncodingUnavailableError,
    EstimateCounter,
    load_encoding,
)
from chatapp.llm.part_tokens import attachment_tokens, unknown_tokens
from chatapp.messages.inline_files import without_inline_files
from chatapp.messages.parts import FREE_PARTS, attachment_of, kept_apart, shown_text

if TYPE_CHECKING:
    import tiktoken

logger = logging.getLogger(__name__)

PIECE_CHARS = 16_000
"""The longest text given to tiktoken at once: its regex engine panics on a million blanks."""

CUT_WINDOW_CHARS = 4_000
"""How far before the end of a piece a place is sought where a cut changes no count."""


class ModelTokenCounter(Protocol):
    """Counts the tokens of any text, in linear time, without raising."""

    @property
    def name(self) -> str:
        """Name of the way of counting, such as `tiktoken:o200k_base`, `estimate` or `chars4`."""

    @property
    def exact(self) -> bool:
        """Whether counts are those of the encoding itself."""

    def count(self, text: str) -> int:
        """Return 0 for the empty text and at least 1 for any other."""


# Neither encoding merges across these places, so that the pieces' counts add up to the whole's.
_SEAMS = (re.compile(r" (?=\S)"), re.compile(r"(?<=[^\W_])(?=[^\w'])"))


class TiktokenCounter:
    """Counts as one of tiktoken's encodings does, special tokens as the text that users wrote.

    Raises EncodingUnavailableError when built without the encoding's file on this machine. Long
    texts are counted in pieces; where a piece has no blank or punctuation to cut at, the count may
    be off by a token or two.
    """

    exact = True

    def __init__(self, encoding_name: str, *, cache_dir: Path | None = None) -> None:
        self.encoding_name = encoding_name
        self.name = f"tiktoken:{encoding_name}"
        self._encoding: tiktoken.Encoding = load_encoding(encoding_name, cache_dir)
        self._estimate = EstimateCounter(reason="because tiktoken failed on the text")

    def count(self, text: str) -> int:
        """Return the encoding's count; a piece on which tiktoken fails is estimated."""
        if len(text) <= PIECE_CHARS:
            return self._count_piece(text)
        return sum(map(self._count_piece, _pieces(text)))

    def _count_piece(self, piece: str) -> int:
        try:
            return len(self._encoding.encode_ordinary(piece))
        except BaseException as error:
            # A panic in Rust arrives as pyo3_runtime.PanicException, which is no Exception and
            # cannot be imported.
            if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
                raise
            logger.warning(
                "%s failed on %d characters (%s); estimated", self.name, len(piece), type(error)
            )
            return self._estimate.count(piece)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = _seam(text, start + PIECE_CHARS)
        yield text[start:end]
        start = end
    yield text[start:]


def _seam(text: str, limit: int) -> int:
    for seam in _SEAMS:
        if found := seam.search(text, limit - CUT_WINDOW_CHARS, limit):
            return found.start()
    return limit


# --- choosing -----------------------------------------------------------------

_lock = threading.Lock()
_decided: dict[str, ModelTokenCounter] = {}
_ESTIMATE = EstimateCounter()
_ESTIMATE_UNKNOWN = EstimateCounter(reason="because the model's encoding is not known")
_CHARS4 = Chars4Counter()


def counter_for(
    encoding: str | None, *, mode: str = "auto", cache_dir: Path | None = None
) -> ModelTokenCounter:
    """Return the best counter that can be had on this machine without the network.

    `encoding` is the model's (see `encoding_for_model`), `mode` is `auto`, `estimate`, `chars4` or
    `tiktoken:<encoding>`, which counts every model with that encoding. Each encoding is tried once
    per process, with the `cache_dir` of the first call; after `load_encodings` the processes have
    to be restarted. Raises ValueError for another mode.
    """
    if mode == "estimate":
        return _ESTIMATE
    if mode == "chars4":
        return _CHARS4
    if mode.startswith("tiktoken:"):
        encoding = mode.removeprefix("tiktoken:")
    elif mode != "auto":
        raise ValueError(
            f"{mode!r} is no way to count tokens; "
            f"use auto, estimate, chars4 or tiktoken:<encoding>."
        )
    if not encoding:
        return _ESTIMATE_UNKNOWN
    # Without the lock first: a dict is read safely, and requests should not queue here.
    return _decided.get(encoding) or _decide(encoding, cache_dir)


def reset_counters() -> None:
    """Forget which encodings were loaded or missing. For tests."""
    with _lock:
        _decided.clear()


def _decide(encoding: str, cache_dir: Path | None) -> ModelTokenCounter:
    with _lock:
        if encoding in _decided:
            return _decided[encoding]
        counter: ModelTokenCounter
        try:
            counter = TiktokenCounter(encoding, cache_dir=cache_dir)
        except EncodingUnavailableError as error:
            counter = EstimateCounter(reason=f"because {str(error).rstrip('.')}")
            logger.warning(describe_counter(counter))
        else:
            logger.debug(describe_counter(counter))
        _decided[encoding] = counter
        return counter


def describe_counter(counter: ModelTokenCounter) -> str:
    """Tell an operator in sentences how tokens are counted and how that could be bettered."""
    if isinstance(counter, TiktokenCounter):
        return f"Exact counts with tiktoken's {counter.encoding_name}."
    if isinstance(counter, EstimateCounter):
        sentence = f"Estimated from the kinds of characters, {counter.reason}."
        if "not on this machine" in counter.reason:
            sentence += " Run manage.py load_encodings or install palimpsest[offline]."
        return sentence
    if isinstance(counter, Chars4Counter):
        return "Characters divided by four; Chinese, Japanese and Korean come out far too low."
    return f"Counted by {counter.name}."


# tiktoken.model's table, without an import that every process would pay for only to look a name up.
# gpt-oss has o200k_harmony there, whose ordinary tokens are those of o200k_base.
_MODEL_ENCODINGS = (
    (
        re.compile(r"(?:chatgpt-4o|gpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|o1|o3|o4)(?![a-z0-9])"),
        "o200k_base",
    ),
    (
        re.compile(
            r"(?:gpt-4|gpt-3\.5|gpt-35)(?![a-z0-9.])"
            r"|text-embedding-(?:ada-002|3-small|3-large)$|(?:davinci|babbage)-002$"
        ),
        "cl100k_base",
    ),
)
_MODEL_PREFIX = re.compile(r"^(?:openai/|azure/)?(?:ft:)?")


def encoding_for_model(name: str) -> str | None:
    """Return the encoding of a model's name, or None when it is not known. Loads nothing.

    A provider (`openai/gpt-4o`) or fine-tuning mark (`ft:gpt-4o:…`) before the name is looked past.
    """
    bare = _MODEL_PREFIX.sub("", name.strip().lower())
    for pattern, encoding in _MODEL_ENCODINGS:
        if pattern.match(bare):
            return encoding
    return None


# --- messages -----------------------------------------------------------------


def count_message(wire: Mapping[str, object], counter: ModelTokenCounter) -> int:
    """Return what one chat message in wire format costs.

    Its texts, refusal, and its tool calls' names and arguments are counted as one text; files,
    images and recordings cost what chatapp.llm.part_tokens says, never the words of their base64;
    one inside a tool's text, or a call's arguments, costs its placeholder, as it is sent. Role,
    name, ids and reasoning cost nothing.
    """
    content = wire.get("content")
    parts = content if isinstance(content, list | tuple) else [content]
    costs = list(map(_part_cost, parts))
    texts = [text for text, _ in costs]
    if wire.get("role") in ("tool", "function"):
        texts = list(map(without_inline_files, texts))
    texts.append(_text(wire.get("refusal")))
    texts.extend(_call_texts(wire))
    return counter.count("".join(texts)) + sum(tokens for _, tokens in costs)


def _part_cost(part: object) -> tuple[str, int]:
    """Return the words of a part, and the tokens that it costs besides them."""
    if not isinstance(part, Mapping):
        return _text(part), 0
    # Asked of a tuple: the type of a malformed part may be a list, which no set can be asked for.
    if part.get("type") in FREE_PARTS:
        return "", 0
    own = next((part[key] for key in ("text", "refusal") if isinstance(part.get(key), str)), None)
    if found := attachment_of(part):
        return (own or "") + found.text, attachment_tokens(found)
    if own is not None:
        return own, 0
    if told := kept_apart(part):
        return "", told.get("tokens", 0)
    return shown_text(part), unknown_tokens(part)


def count_part(part: object, counter: ModelTokenCounter) -> int:
    """Return what one part of a content costs by itself."""
    words, tokens = _part_cost(part)
    return counter.count(words) + tokens


def _call_texts(wire: Mapping[str, object]) -> Iterator[str]:
    calls = wire.get("tool_calls")
    calls = list(calls) if isinstance(calls, list | tuple) else []
    for call in [*calls, {"function": wire.get("function_call")}]:
        if not isinstance(call, Mapping):
            continue
        called = call.get("function") or call.get("custom")
        if isinstance(called, Mapping):
            yield _text(called.get("name"))
            yield without_inline_files(_text(called.get("arguments", called.get("input"))))


def _text(value: object) -> str:
    """Return text as it is, nothing for None, and any other value as compact JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


# More tokens, bytes or messages than any request has: what is larger is nonsense.
LARGEST_NUMBER = 10**12


def plausible(value: Any) -> int | None:
    """Return a whole number that a server may have counted; None for every other value."""
    if isinstance(value, float) and value == value and abs(value) <= LARGEST_NUMBER:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= LARGEST_NUMBER else None


def context_tokens(usage: Mapping[str, Any] | None) -> int | None:
    """Return how many tokens the context held after an answer, or None when nothing was reported.

    Cached and reasoning tokens are parts of the prompt's and the answer's, so they are never added.
    """
    if not isinstance(usage, Mapping):
        return None
    prompt = plausible(usage.get("prompt_tokens"))
    completion = plausible(usage.get("completion_tokens"))
    if prompt == 0:
        # No request has none: nothing was counted.
        return None
    if prompt is not None and completion is not None:
        return prompt + completion
    return plausible(usage.get("total_tokens")) or None

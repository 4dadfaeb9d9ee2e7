"""Counting tokens: against bare tiktoken, and how far the estimate is off."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from chatapp.formats import UnknownFormatError, parse
from chatapp.llm.encodings import EncodingUnavailableError, EstimateCounter
from chatapp.llm.tokens import TiktokenCounter
from chatapp.messages.wire import text_of
from tests.bench.measure import Row
from tests.bench.sizes import Sizes

ROOT = Path(__file__).resolve().parent.parent.parent
SHARED = ROOT.parent / "shared"
SAMPLES = ROOT / "chatapp" / "samples"
ENCODINGS = ("o200k_base", "cl100k_base")
# Shorter texts are all rounding; a message of this length is where an error begins to count.
SHORTEST_CHARS = 200
LARGEST_FILE = 20_000_000


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme; those of an encoding only where its file is."""
    for encoding in ENCODINGS:
        try:
            counter = TiktokenCounter(encoding, cache_dir=SHARED / "encodings")
        except EncodingUnavailableError:
            continue
        for kind, texts in _texts(sizes.counted_characters).items():
            yield from _against_bare(kind, texts, counter)
    yield from _estimate_error()


def _texts(characters: int) -> dict[str, list[str]]:
    """Return messages of three kinds that have about that many characters together."""
    code = [path.read_text() for path in sorted((ROOT / "compaction" / "engine").glob("*.py"))]
    return {
        "English": _filled(_sample("customer_support"), characters),
        "Chinese": _filled(_sample("project_discussion_zh"), characters),
        "code": _filled(code, characters),
    }


def _sample(name: str) -> list[str]:
    messages = json.loads((SAMPLES / f"{name}.json").read_text())["messages"]
    return [text for message in messages if (text := text_of(message.get("content")))]


def _filled(texts: list[str], characters: int) -> list[str]:
    times = max(1, characters // sum(map(len, texts)))
    return texts * times


def _against_bare(kind: str, texts: list[str], counter: TiktokenCounter) -> Iterator[Row]:
    encoding = counter._encoding
    tokens = sum(len(encoding.encode_ordinary(text)) for text in texts)
    ours, bare = _fastest(
        lambda: [counter.count(text) for text in texts],
        lambda: [len(encoding.encode_ordinary(text)) for text in texts],
    )
    name = f"counting, {counter.encoding_name}, {kind}"
    yield Row(name=name, n=len(texts), value=tokens / ours, unit="tokens/s")
    yield Row(name=f"{name}, bare tiktoken", n=len(texts), value=tokens / bare, unit="tokens/s")
    yield Row(name=f"{name}, of bare", n=len(texts), value=100 * bare / ours, unit="%")


def _fastest(*works: Callable[[], object]) -> list[float]:
    """Return each one's best seconds of five, taken in turns so that noise meets all alike."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(5):
        for seconds, work in zip(found, works, strict=True):
            started = time.process_time()
            work()
            seconds.append(max(time.process_time() - started, 1e-9))
    return [min(seconds) for seconds in found]


def _estimate_error() -> Iterator[Row]:
    """Yield the 95th percentile of the estimate's error over the real conversations."""
    try:
        exact = TiktokenCounter("o200k_base", cache_dir=SHARED / "encodings")
    except EncodingUnavailableError:
        return
    estimate, errors = EstimateCounter(), []
    for text in _real_texts():
        tokens = exact.count(text)
        errors.append(100 * abs(estimate.count(text) - tokens) / tokens)
    if len(errors) < 20:
        return
    p95 = statistics.quantiles(errors, n=20)[-1]
    yield Row(name="estimate, error p95", n=len(errors), value=p95, unit="%")


def _real_texts() -> Iterable[str]:
    """Return the distinct texts of the conversations beside the checkout, where they are."""
    found: dict[str, None] = {}
    for path in sorted(SHARED.glob("data/*/**/*")):
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            continue
        try:
            parsed: Any = parse(path.read_bytes(), name=path.name)
        except (UnknownFormatError, ValueError):
            continue
        for conversation in parsed.conversations:
            texts = (text_of(message.wire.get("content")) for message in conversation.messages)
            found |= dict.fromkeys(text for text in texts if len(text) >= SHORTEST_CHARS)
    return found

"""Importing a conversation: how fast, and how much memory it takes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from chatapp.llm.registry import get_model
from chatapp.transfer import import_file
from tests.bench.conversations import owner, wires
from tests.bench.measure import Row, peak_megabytes, spending
from tests.bench.sizes import Sizes
from tests.real_data import DATA

LONG_TEXT = 10_000


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    count = sizes.imported
    content = _file(count, seed=5)
    with spending() as spent:
        _import(content, count)
    yield Row(name="import", n=count, value=1000 * count / spent.wall, unit="messages/s")
    content = _file(count, seed=6)
    peak = peak_megabytes(lambda: _import(content, count))
    yield Row(name="import, file", n=count, value=len(content) / 1e6, unit="MB")
    yield Row(name="import, peak memory", n=count, value=peak, unit="MB")
    content = _wide(count)
    with spending() as spent:
        _import(content, count + 1)
    yield Row(name="import, branches", n=count, value=1000 * count / spent.wall, unit="branches/s")
    yield from _deep_tree(count // 2)
    yield from _large_tree(sizes.imported_tree_bytes)
    yield from _real_trees()


def _deep_tree(depth: int) -> Iterator[Row]:
    """Measure a line that is so deep, each message of which has a second answer beside it."""
    content = _tree(f"deep {depth}", (_comb(n) for n in range(2 * depth)))
    with spending() as spent:
        _import(content, 2 * depth)
    rate = 2000 * depth / spent.wall
    yield Row(name="import, a fork at each depth", n=depth, value=rate, unit="messages/s")


def _comb(number: int) -> tuple[str, str | None, str]:
    """The messages of a deep line by turns with those beside it."""
    depth, is_beside = divmod(number, 2)
    parent = f"n{depth - 1}" if depth else None
    return f"{'x' if is_beside else 'n'}{depth}", parent, f"text {number}"


def _large_tree(size: int) -> Iterator[Row]:
    """Measure a file of so many bytes: how long it takes for each of them, and in which memory."""
    count = max(10, size // LONG_TEXT)
    chance = random.Random(size)
    words = [f"{chance.getrandbits(32):x}" for _ in range(LONG_TEXT // 9)]

    def nodes() -> Iterator[tuple[str, str | None, str]]:
        for number in range(count):
            parent = f"n{max(0, number - chance.choice((1, 1, 1, 2, 7)))}" if number else None
            yield f"n{number}", parent, f"{number} {' '.join(words)}"

    content = _tree(f"large {size}", nodes())
    with spending() as spent:
        _import(content, count)
    rate = len(content) / 1000 / spent.wall
    yield Row(name="import, a large tree", n=len(content), value=rate, unit="MB/s")
    again = content.replace(b'"large ', b'"later ', 1)
    peak = peak_megabytes(lambda: _import(again, count))
    times = peak * 1e6 / len(content)
    yield Row(name="import, a large tree, peak memory", n=len(content), value=times, unit="× file")


def _tree(name: str, nodes: Iterable[tuple[str, str | None, str]]) -> bytes:
    """An export with these (id, parent, text)."""
    messages = [
        {"messageId": key, "parentMessageId": parent, "isCreatedByUser": not n % 2, "text": text}
        for n, (key, parent, text) in enumerate(nodes)
    ]
    return json.dumps({"conversationId": name, "exportAt": "now", "messages": messages}).encode()


def _real_trees() -> Iterator[Row]:
    """Measure the import of the 60 trees of the data folder, where that is."""
    file = DATA / "oasst" / "en_trees_dev.jsonl"
    if not file.is_file():
        return
    content = file.read_bytes()
    with spending() as spent:
        report = import_file(owner=owner(), content=content, name=file.name)
    trees = len(report.imported)
    count = sum(one.messages_added for one in report.imported)
    yield Row(name="import, trees", n=trees, value=1000 * count / spent.wall, unit="messages/s")


def _wide(count: int) -> bytes:
    """An export of one question with `count` answers, each of which is a branch."""
    question = {"messageId": "q", "parentMessageId": None, "isCreatedByUser": True, "text": "Why?"}
    answers = (
        {"messageId": f"a{n}", "parentMessageId": "q", "isCreatedByUser": False, "text": f"So {n}."}
        for n in range(count)
    )
    about = {"conversationId": f"wide {count}", "exportAt": "now", "title": "Import of branches"}
    return json.dumps(about | {"messages": [question, *answers]}).encode()


def _file(count: int, *, seed: int) -> bytes:
    made = wires(count, get_model("default").counter, seed=seed)
    return json.dumps({"title": f"Import {seed}", "messages": made}).encode()


def _import(content: bytes, count: int) -> None:
    report = import_file(owner=owner(), content=content, name="bench.json")
    assert [one.messages_added for one in report.imported] == [count], report.problems

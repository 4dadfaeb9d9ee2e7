"""Importing a conversation: how fast, and how much memory it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from chatapp.llm.registry import get_model
from chatapp.transfer import import_file
from tests.bench.conversations import owner, wires
from tests.bench.measure import Row, peak_megabytes, spending
from tests.bench.sizes import Sizes
from tests.real_data import DATA


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
    yield from _real_trees()


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

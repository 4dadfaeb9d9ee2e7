"""The same work by a library that many use: LangGraph with its checkpoints in SQLite.

It is measured where it is installed: `pip install langgraph langgraph-checkpoint-sqlite`. Nothing
here depends on it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.instant import ANSWER
from tests.bench.measure import Row, cpu, repeat
from tests.bench.sizes import Sizes
from tests.bench.states import QUESTION

ABSENT = "LangGraph is not installed, so there is no row of it to compare with."
KEPT = 40


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme, or a sentence and a row that says that there are none."""
    try:
        parts = _Parts()
    except ImportError:
        print(ABSENT, flush=True)
        yield Row(name="peers that are installed", n=0, value=0, unit="values")
        return
    for count in sizes.peers:
        with tempfile.TemporaryDirectory() as folder:
            yield _turn(parts, count, Path(folder) / "peer.sqlite3", sizes)
        yield _cut(parts, count, sizes)


class _Parts:
    """What is used of the libraries; ImportError where they are not there."""

    def __init__(self) -> None:
        self.graph: Any = import_module("langgraph.graph")
        self.sqlite: Any = import_module("langgraph.checkpoint.sqlite")
        self.said: Any = import_module("langchain_core.messages")

    def history(self, count: int) -> list[Any]:
        kinds = (self.said.HumanMessage, self.said.AIMessage)
        return [kinds[number % 2](f"{number} {ANSWER}") for number in range(count)]


def _turn(parts: _Parts, count: int, path: Path, sizes: Sizes) -> Row:
    """Take turns of a conversation that is stored after each of them."""

    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [parts.said.AIMessage(ANSWER)]}

    built = parts.graph.StateGraph(parts.graph.MessagesState)
    built.add_node("model", answer)
    built.add_edge(parts.graph.START, "model")
    with parts.sqlite.SqliteSaver.from_conn_string(str(path)) as saver:
        talk = built.compile(checkpointer=saver)
        place: Any = {"configurable": {"thread_id": "1"}}
        talk.invoke({"messages": parts.history(count)}, place)
        asked = {"messages": [parts.said.HumanMessage(QUESTION)]}
        spent = repeat(partial(talk.invoke, asked, place), sizes.turns_measured)
    # It writes in threads of its own.
    took = statistics.median(one.process for one in spent)
    return Row(name="LangGraph and SQLite: stored turn", n=count, value=took, unit="CPU ms")


def _cut(parts: _Parts, count: int, sizes: Sizes) -> Row:
    """Find the newest messages that a request keeps."""
    history = parts.history(count)
    cut = partial(
        parts.said.trim_messages, history, max_tokens=KEPT, token_counter=len, strategy="last"
    )
    spent = repeat(cut, sizes.repeats)
    name = f"LangChain: keep the newest {KEPT} messages"
    return Row(name=name, n=count, value=cpu(spent), unit="CPU ms")

"""The shape of the code in figures: files, functions, imports, and what a turn passes through.

    python -m tests.bench.structure

Static figures are read from the source; the others from a turn over the API, a turn that compacts
first and a run in the queue, each traced with sys.setprofile: which files of ours are entered, how
often a call crosses from one file to another, and how many queries are made.
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("chatapp", "compaction")
SHORT_LINES = 60


def modules() -> dict[str, Path]:
    """Return the product's modules by dotted name, without migrations."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" in path.parts:
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.AST, known: dict[str, Path]) -> set[str]:
    """Return the modules of ours that a module imports, also lazily or for types only."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def circles(graph: dict[str, set[str]]) -> int:
    """Return how many groups of modules import each other in a circle."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    reached = {name: reach(name) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return len(groups)


def spread(values: list[int]) -> str:
    """Return median, 90th percentile and maximum."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):g} / {ordered[int(0.9 * len(ordered))]} / {ordered[-1]}"


def static_figures() -> Iterator[tuple[str, Any]]:
    """Yield what can be read from the source."""
    known = modules()
    texts = {name: path.read_text() for name, path in known.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines = {name: text.count("\n") for name, text in texts.items()}
    graph = {name: imports_of(tree, known) - {name} for name, tree in trees.items()}
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    comments = sum(
        line.strip().startswith("#") for text in texts.values() for line in text.splitlines()
    )
    full = [count for count in lines.values() if count]
    yield "files", len(lines)
    yield "lines", sum(lines.values())
    yield "lines of a file: median / p90 / max", spread(full)
    yield f"files of 1 to {SHORT_LINES - 1} lines", sum(count < SHORT_LINES for count in full)
    yield "lines of a function: median / p90 / max", spread(functions)
    yield (
        "modules that a file imports: mean",
        round(statistics.mean(len(names) for names in graph.values()), 2),
    )
    yield "comments in 100 lines", round(100 * comments / sum(lines.values()), 2)
    yield "import circles", circles(graph)
    yield (
        "modules of chatapp that compaction imports",
        len(
            {
                target
                for name, names in graph.items()
                if name.startswith("compaction")
                for target in names
                if target.startswith("chatapp")
            }
        ),
    )


class Trace:
    """The files of ours that were entered, and the calls that crossed from one to another."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.crossings = 0
        self.queries = 0

    def hear(self, frame: Any, event: str, argument: Any) -> None:
        """Take one call in."""
        if event != "call":
            return
        name = frame.f_code.co_filename
        if not name.startswith(str(ROOT)) or "/tests/" in name or "/.venv/" in name:
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(str(ROOT)):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != name:
            self.crossings += 1


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace what is done inside, queries included."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    trace = Trace()
    with CaptureQueriesContext(connection) as captured:
        sys.setprofile(trace.hear)
        try:
            yield trace
        finally:
            sys.setprofile(None)
    trace.queries = len(captured)


def dynamic_figures() -> Iterator[tuple[str, Any]]:
    """Yield what a turn, a turn that compacts and a run in the queue pass through."""
    from django.contrib.auth import get_user_model
    from rest_framework.test import APIClient

    client = APIClient(SERVER_NAME="localhost")
    client.force_authenticate(get_user_model().objects.create_user("bench"))

    def post(path: str, **body: Any) -> dict[str, Any]:
        answer = client.post(f"/api/v1/{path}", body, format="json")
        assert answer.status_code < 300, answer.content
        return dict(answer.json())

    def talk(session: str, count: int) -> None:
        messages = [
            {"role": role, "content": f"The {role} says something, number {number}."}
            for number in range(count // 2)
            for role in ("user", "assistant")
        ]
        post(f"sessions/{session}/messages/", messages=messages)

    def measured(session: str, work: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
        with traced() as trace:
            work()
        yield "files", len(trace.files)
        yield "crossings", trace.crossings
        yield "queries", trace.queries

    for title, messages in (("a plain turn", 4), ("a turn that compacts", 44)):
        session = post("sessions/", title="bench")["id"]
        post(f"sessions/{session}/turns/", content="Hello")
        talk(session, messages)

        def turn(session: str = session) -> None:
            post(f"sessions/{session}/turns/", content="And now?")

        for name, value in measured(session, turn):
            yield f"{title}: {name}", value
    session = post("sessions/", title="bench")["id"]
    talk(session, 30)
    run = post(f"sessions/{session}/compact/")["id"]

    def work() -> None:
        from compaction.tasks import run_compaction

        run_compaction(run)

    for name, value in measured(session, work):
        yield f"a run in the queue: {name}", value


def main() -> None:
    """Print all figures."""
    for name, value in static_figures():
        print(f"{name:48} {value}")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django
    from django.test.runner import DiscoverRunner

    django.setup()
    runner = DiscoverRunner(verbosity=0)
    databases = runner.setup_databases()
    try:
        for name, value in dynamic_figures():
            print(f"{name:48} {value}")
    finally:
        runner.teardown_databases(databases)


if __name__ == "__main__":
    main()

"""Rules that hold the house: class names, sizes of files, references that resolve."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("chatapp", "compaction")
SHORT_LINES, LONG_LINES, LONG_FUNCTION_LINES = 60, 450, 52
# What is short because its framework wants a file of that name, or because it is one command.
MAY_BE_SHORT = re.compile(r"/(?:__init__|apps|urls|asgi|wsgi|tasks)\.py$|/management/commands/")
# Short nouns that fit into no other: what all layers share, or a kind of plug-in.
SHORT_NOUNS = {
    "chatapp/database.py",
    "chatapp/site.py",
    "compaction/engine/rendering.py",
    "compaction/engine/strategies/base.py",
    "compaction/errors.py",
    "compaction/monitoring/health.py",
    "compaction/signals.py",
}
# Names that Django or its REST framework asks for inside a class.
NESTED = {"Meta", "Media"}
OUTSIDE = re.compile(
    r"DESIGN\.md|STYLE\.md|\bspec/|pi_openclaw|rs_window|model_errors|stack\.md|\bshared/"
    r"|\brules? [0-9]+\b|\(B[0-9]{1,2}\b|\bB[0-9]{1,2}\)|\b[0-9]\.[0-9]+: [0-9]{4}\b|\bspec [0-9]"
)


def modules() -> dict[str, str]:
    """Return every module of the product by its path, without migrations."""
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
    }


MODULES = modules()


@cache
def trees() -> dict[str, ast.Module]:
    """Return every module's syntax tree; whoever only collects the tests parses nothing."""
    return {path: ast.parse(text) for path, text in MODULES.items()}


def prose_of(text: str) -> list[tuple[int, str]]:
    """Return comments and docstrings with their line numbers."""
    found, before = [], tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        starts_a_line = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts_a_line):
            found.append((token.start[0], token.string))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    return found


def test_a_class_name_exists_once():
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name != "Command":
                places[node.name].append(path)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_file_is_a_noun_of_some_size():
    lines = {path: text.count("\n") for path, text in MODULES.items()}
    short = {p for p, n in lines.items() if n < SHORT_LINES and not MAY_BE_SHORT.search(p)}
    assert short <= SHORT_NOUNS
    assert {path: count for path, count in lines.items() if count > LONG_LINES} == {}


def test_a_function_can_be_read_at_once():
    long = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LONG_FUNCTION_LINES
    }
    assert long == {}


def test_nothing_points_outside_the_repository():
    found = [
        f"{path}:{line} {match.group(0)}"
        for path, text in MODULES.items()
        for line, prose in prose_of(text)
        if (match := OUTSIDE.search(prose))
    ]
    assert found == []


@pytest.mark.parametrize("path", sorted(MODULES))
def test_every_file_that_a_comment_names_is_there(path):
    missing = []
    for line, prose in prose_of(MODULES[path]):
        for name in re.findall(r"\b(?:docs|static|tests|chatapp|compaction)/[\w/.-]+\.\w+", prose):
            places = (ROOT, ROOT / "static", ROOT / "docs")
            if not any((place / name.rstrip(".")).exists() for place in places):
                missing.append(f"{line}: {name}")
        for module in re.findall(r"(?<![\w/])(?:chatapp|compaction)(?:\.[a-z_0-9]+)+", prose):
            if not resolves(module):
                missing.append(f"{line}: {module}")
    assert missing == []


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module of ours, or something a module or package defines."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        file = ROOT.joinpath(*parts[:length])
        source = file.with_suffix(".py")
        if not source.exists() and (file / "__init__.py").exists():
            source = file / "__init__.py"
        if source.exists():
            rest = parts[length:]
            return (
                not rest or re.search(rf"\b{re.escape(rest[0])}\b", source.read_text()) is not None
            )
    return False


def test_a_reason_is_declared_once():
    from compaction.engine.policy.reasons import Reason

    # Strings that are reasons in the code, outside of their declaration.
    written = Counter(
        node.value
        for path, tree in trees().items()
        if "policy/reasons.py" not in path
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "reason"
        for node in [node.value]
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert set(written) & {str(reason.value) for reason in Reason} == set()


def test_an_error_code_of_a_run_is_declared_once():
    from compaction.engine.policy.reasons import RunCode

    rooms = re.compile(r"compaction/(?:branches|engine|limits|recovery|runs|summaries|vocabulary)")
    # A file that a tool deleted and a turn that was interrupted have the same words as two codes.
    other = re.compile(r"policy/reasons\.py|engine/(?:abridged|tool_actions)\.py")
    written = {
        f"{path}:{node.lineno} {node.value}"
        for path, tree in trees().items()
        if rooms.match(path) and not other.search(path)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in set(RunCode)
    }
    assert written == set()

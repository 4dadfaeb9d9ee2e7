"""Whether the tests of the modules that decide notice a change of them: mutants, one at a time.

    python -m tests.mutants [MODULE…] [--sample N] [--seed S]

A mutant is a module with one change: a comparison swapped, a number one more or less, a boolean
turned, `and` for `or`, a `not` dropped, a call deleted that stands as a statement, or a default
returned. It is written into a copy of the checkout, never into the checkout, and the module's own
tests run until one fails. Ends with 1 where they kill less than 90 % in a module.

Each mutant gets a fork of this process, which has the libraries loaded but nothing of the project.
Modules of the engine run without Django.

Module          Its file, and the files of its tests, the quickest first
cuts            compaction/engine/policy/cuts.py
                tests/engine: test_cuts test_tail_chars test_plugin_contracts test_tail_cuts
exchanges       compaction/engine/policy/exchanges.py
                tests/engine: test_tail_chars
bisect          compaction/engine/strategies/bisect.py
                tests/engine: test_bisect test_bisect_strategy test_bisect_bound test_bisect_gate
halving         compaction/engine/strategies/halving.py
                tests/engine: test_bisect_strategy test_bisect test_bisect_properties
acceptance      compaction/engine/strategies/acceptance.py
                tests/engine: test_validation test_plausibility test_outcomes test_hostile_texts
abridged        compaction/engine/abridged.py
                tests/engine: test_abridged test_importance
tool_actions    compaction/engine/tool_actions.py
                tests/engine: test_tool_actions test_actions
leases          compaction/branches/leases.py
                tests/compaction: test_states test_leases
planning        compaction/branches/planning.py
                tests/compaction: test_planning test_backend
storing         compaction/summaries/storing.py
                tests/compaction: test_storing test_store test_resummarize test_ending test_compact
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings

ROOT = Path(__file__).resolve().parent.parent
LEAST_KILLED_PERCENT = 90
# One test may take as long as all of them without a change, all of them so many times that, and
# neither less than this.
TIMES_LONGER, LEAST_SECONDS = 5, 10.0
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*.sqlite3*", "node_modules")

# Function and mutation -> why no test can tell it from the original.
EQUIVALENT: dict[str, dict[str, str]] = {
    "cuts": {
        "keep_last: max(0, count) -> max(-1, count)": "_cut_at goes no further than the end",
        "_keep_seen: _unseen_results(items, is_end=facts.earlier > 0) if unseen else 0 -> "
        "_unseen_results(items, is_end=facts.earlier > 0) if unseen else -1": "none keeps fewer",
        "keep_last: 0 -> -1": "neither says that items stand before",
        "keep_last: max(0, len(items) - max(0, count)) -> "
        "max(-1, len(items) - max(0, count))": "both are before the first cut",
        "_unseen_results: return 0 -> return -1": "none keeps fewer",
    },
    "acceptance": {
        "repeated_share: return 0.0 -> return -1.0": "both are below every share",
    },
    "halving": {
        "cut_to_tokens: (0, min(len(text), tokens * LONGEST_TOKEN)) -> "
        "(-1, min(len(text), tokens * LONGEST_TOKEN))": "no tokens are always enough for no text",
        "cut_to_tokens: counter.count(text[:tokens * LONGEST_TOKEN]) <= tokens -> "
        "counter.count(text[:tokens * LONGEST_TOKEN]) < tokens": "it ends at the whole text, too",
        "cut_to_tokens: len(text) <= tokens * LONGEST_TOKEN -> "
        "len(text) < tokens * LONGEST_TOKEN": "so it does here",
        "cut_to_tokens: low + high + 1 -> low + high + 2": "another middle leads to the same end",
    },
    "planning": {
        ": BATCH_MARGIN = 64 -> BATCH_MARGIN = 65": "more is read ahead, no cut depends on it",
        ": BATCH_MARGIN = 64 -> BATCH_MARGIN = 63": "less is read ahead, no cut depends on it",
        **dict.fromkeys(
            (
                "_planned: tail.items[0] -> tail.items[1]",
                "_planned: tail.items[0] -> tail.items[-1]",
                "_planned: tail.items[0].position - 1 -> tail.items[0].position - 2",
                "_planned: tail.items[0].position - 1 -> tail.items[0].position - 0",
            ),
            "legal_plan asks for more items before it cuts none of them",
        ),
        "input_of: read *= 4 -> read *= 5": "more is read on, no cut depends on it",
        "input_of: read *= 4 -> read *= 3": "less is read on, no cut depends on it",
    },
}


# --- mutants --------------------------------------------------------------------------------------

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
DEFAULTS = {"str": "''", "int": "0", "float": "0.0", "bool": "False", "list": "[]", "dict": "{}"}
LONGEST_SHOWN = 90
# What holds no rule, or only what a type checker reads.
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module's text with one change."""

    line: int
    function: str
    change: str
    source: str

    @property
    def key(self) -> str:
        """What EQUIVALENT lists it under: lines move, this stays."""
        return f"{self.function}: {self.change}"


@dataclass(slots=True)
class _Place:
    """A node, where it hangs in the tree, and what is around it."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    returns: str

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(source: str) -> list[Mutant]:
    """Return every mutant of a module's text, each once, in the order of its lines."""
    tree = ast.parse(source)
    original = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for place in _places(tree):
        # A changed constant alone says nothing: its surroundings are shown.
        is_default = isinstance(place.parent, ast.arguments)
        shown = (
            place.parent if isinstance(place.node, ast.Constant) and not is_default else place.node
        )
        before = ast.unparse(shown)
        for changed in _changes_of(place):
            place.put(ast.copy_location(changed, place.node))
            after = ast.unparse(shown if shown is place.parent else changed)
            text = ast.unparse(tree)
            place.put(place.node)
            line = getattr(place.node, "lineno", 0)
            change = _difference(before, after)
            if text != original and text not in found:
                found[text] = Mutant(line=line, function=place.function, change=change, source=text)
    return sorted(found.values(), key=lambda mutant: mutant.line)


def _places(tree: ast.AST, function: str = "", returns: str = "") -> Iterator[_Place]:
    for field, value in ast.iter_fields(tree):
        if field in SKIPPED_FIELDS:
            continue
        several = isinstance(value, list)
        for index, node in enumerate(value if several else [value]):
            if not isinstance(node, ast.AST):
                continue
            yield _Place(node, tree, field, index if several else None, function, returns)
            inner, result = function, returns
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inner = f"{function}.{node.name}".strip(".")
            if isinstance(node, ast.FunctionDef):
                result = ast.unparse(node.returns) if node.returns else ""
            yield from _places(node, inner, result)


def _changes_of(place: _Place) -> Iterator[ast.AST]:
    match place.node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for at, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield ast.Compare(left, [*ops[:at], other(), *ops[at + 1 :]], others)
        case ast.BoolOp(op=ast.And(), values=values):
            yield ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            yield ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Return(value=ast.expr()):
            default = DEFAULTS.get(place.returns.partition("[")[0], "None")
            yield ast.Return(ast.parse(default, mode="eval").body)


def _difference(before: str, after: str) -> str:
    """Return both texts in a line; of long ones, what is around the change."""
    texts = [" ".join(text.split()) for text in (before, after)]
    pairs = enumerate(zip(*texts, strict=False))
    start = max(0, next((at for at, (one, other) in pairs if one != other), 0) - 30)
    if max(map(len, texts)) > LONGEST_SHOWN:
        texts = [f"{'…' if start else ''}{text[start : start + LONGEST_SHOWN]}" for text in texts]
    return " -> ".join(texts)


# --- modules --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module whose mutants are made, and the files of its tests."""

    name: str
    file: str
    tests: tuple[str, ...]

    @property
    def needs_django(self) -> bool:
        return "/engine/" not in self.file


def modules() -> dict[str, Module]:
    """Return the table of this file's docstring; a file of tests that is not there is left out."""
    rows = re.findall(r"^(\w+) +(compaction/\S+\.py)\n +(tests/\w+): (.+)$", __doc__ or "", re.M)
    found = {}
    for name, file, folder, names in rows:
        files = (f"{folder}/{one}.py" for one in names.split())
        present = tuple(one for one in files if (ROOT / one).exists())
        found[name] = Module(name=name, file=file, tests=present)
    return found


# --- running --------------------------------------------------------------------------------------


@contextmanager
def copy_of_the_checkout() -> Iterator[Path]:
    """A copy to write mutants into, with the folder of shared data beside it, as the tests want."""
    with tempfile.TemporaryDirectory(prefix="palimpsest-mutants-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        shared = ROOT.parent / "shared"
        if shared.is_dir():
            (Path(folder) / "shared").symlink_to(shared)
        (copy / "without_django.ini").write_text("[pytest]\npythonpath = .\n")
        yield copy


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """How a module's tests ended, and what failed first."""

    __test__ = False

    passed: bool
    first_failed: str
    seconds: float


class _Watch:
    """Writes the name of the first test that fails into a file, and ends one that does not end."""

    def __init__(self, file: Path, test_seconds: float) -> None:
        self.file, self.test_seconds = file, math.ceil(test_seconds)

    def pytest_runtest_logstart(self) -> None:
        signal.alarm(self.test_seconds)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.file.exists():
            self.file.write_text(report.nodeid.rpartition("/")[2])


def run_tests(
    module: Module, copy: Path, *, test_seconds: float, keep_bytecode: bool = False
) -> TestRun:
    """Run the module's tests in a fork that has nothing of the project loaded.

    A test that takes longer than `test_seconds` fails.
    """
    failed, output = copy.parent / "failed", copy.parent / "output"
    failed.unlink(missing_ok=True)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            _be_the_tests(module, copy, _Watch(failed, test_seconds), output, keep_bytecode)
        except BaseException:
            output.write_text(traceback.format_exc())
        os._exit(70)
    status = _wait_for(child, until=started + TIMES_LONGER * test_seconds)
    took = time.monotonic() - started
    if status is None or os.waitstatus_to_exitcode(status) == -signal.SIGALRM:
        return TestRun(passed=False, first_failed="no end in time", seconds=took)
    passed = os.waitstatus_to_exitcode(status) == 0
    name = failed.read_text() if failed.exists() else "" if passed else "cannot be imported"
    return TestRun(passed=passed, first_failed=name, seconds=took)


def _be_the_tests(
    module: Module, copy: Path, watch: _Watch, output: Path, keep_bytecode: bool
) -> None:
    os.setsid()
    with output.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.chdir(copy)
    # This module came with the checkout's package `tests`; the tests come from the copy.
    for name in [one for one in sys.modules if one.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(one for one in sys.path if one not in ("", str(ROOT)))]
    sys.dont_write_bytecode = not keep_bytecode
    os.environ["PALIMPSEST_DATA_DIR"] = tempfile.mkdtemp(dir=copy.parent)
    # The same examples for each mutant, no time for making a failing one small.
    hypothesis_settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    hypothesis_settings.load_profile("mutants")
    options = ["-q", "-x", "-p", "no:cacheprovider", "--import-mode=importlib"]
    if module.needs_django:
        # A library that is loaded already is not rewritten for its asserts: nobody asks it to.
        options += ["-n0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    else:
        options += ["-c", "without_django.ini", "--rootdir=.", "--noconftest"]
        options += ["-p", "no:django", "-p", "no:xdist"]
    code = pytest.main([*options, *module.tests], plugins=[watch])
    sys.stdout.flush()
    shutil.rmtree(os.environ["PALIMPSEST_DATA_DIR"], ignore_errors=True)
    os._exit(int(code))


def _wait_for(child: int, *, until: float) -> int | None:
    """Return the status that a child ended with; None where it had to be killed."""
    pause = 0.005
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(0.1, pause * 1.5)


def judge(module: Module, mutants: Sequence[Mutant]) -> float:
    """Run each mutant, print how it ended, and return the share that was killed, in percent."""
    equivalent = EQUIVALENT.get(module.name, {})
    killed = judged = 0
    with copy_of_the_checkout() as copy:
        file = copy / module.file
        plain = run_tests(module, copy, test_seconds=600, keep_bytecode=True)
        if not plain.passed:
            print((copy.parent / "output").read_text())
            raise SystemExit(f"{module.name}: its tests fail without a change.")
        # Python takes compiled code for current by time and size: a mutant may have both.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()
        print(
            f"{module.name}: {len(mutants)} mutants, tests take {plain.seconds:.1f} s", flush=True
        )
        for mutant in mutants:
            reason = equivalent.get(mutant.key)
            if reason:
                print(f"  same      {module.file}:{mutant.line}  {mutant.change}  ({reason})")
                continue
            file.write_text(mutant.source)
            ran = run_tests(module, copy, test_seconds=max(LEAST_SECONDS, plain.seconds))
            judged, killed = judged + 1, killed + (not ran.passed)
            word = "SURVIVED" if ran.passed else "killed"
            by = f"  ({ran.first_failed})" if ran.first_failed else ""
            where = f"{module.file}:{mutant.line} {mutant.function}"
            print(f"  {word:<9} {where}  {mutant.change}{by}", flush=True)
    share = 100 * killed / judged if judged else 100.0
    print(f"{module.name}: {killed} of {judged} killed, {share:.1f} %", flush=True)
    return share


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the modules that are named, or all; return 1 where one is below the least share."""
    known = modules()
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(known))
    parser.add_argument("--sample", type=int, help="only so many mutants a module")
    parser.add_argument("--seed", type=int, default=1, help="which ones a sample takes")
    options = parser.parse_args(arguments)
    if unknown := set(options.modules) - set(known):
        parser.error(f"Unknown: {', '.join(sorted(unknown))}. Known: {', '.join(known)}.")
    if any(known[name].needs_django for name in options.modules or known):
        warm_up()
    # Whoever is told to stop removes its copy of the checkout, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shares = []
    for name in options.modules or known:
        mutants = mutants_of((ROOT / known[name].file).read_text())
        if options.sample is not None and options.sample < len(mutants):
            chosen = random.Random(options.seed).sample(range(len(mutants)), options.sample)
            mutants = [mutants[at] for at in sorted(chosen)]
        shares.append(judge(known[name], mutants))
    return 0 if min(shares) >= LEAST_KILLED_PERCENT else 1


def warm_up() -> None:
    """Load the large libraries, so that no fork has to; those that need settings are left out."""
    for name in ("django.db.models", "django.test", "openai", "pydantic", "tiktoken"):
        with suppress(ImportError):
            import_module(name)


if __name__ == "__main__":
    raise SystemExit(main())

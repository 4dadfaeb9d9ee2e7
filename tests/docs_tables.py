"""The tables of the documentation, made from what the code declares.

    python -m tests.docs_tables            writes them anew
    python -m tests.docs_tables --check    fails where a page tells something else

A table stands between `<!-- generated: NAME -->` and `<!-- /generated -->`; NAME is a key of
TABLES.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(
    r"(?P<begin><!-- generated: (?P<name>\w+) -->\n).*?(?P<end><!-- /generated -->)", re.DOTALL
)
# What a check says with nothing but figures in it is told by its function instead.
LEAST_LETTERS = 12
REACTIONS = {
    "recovery": "recovery policy",
    "wait": "wait and repeat",
    "lower_output": "ask for a shorter answer",
    "cut_message": "cut that tool result",
    "drop_images": "leave older images out",
    "adapt": "send it in another form",
    "go_stateless": "send the whole history, without earlier reasoning",
    "report": "tell the user",
}


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(text: str) -> str:
    return text.replace("|", "&#124;")


def code(value: Any) -> str:
    """Return a value as the environment takes it, as code; nothing for nothing.

    A table's cell is one line: of a text of several, the first one and their number.
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    first, *more = text.splitlines() or [""]
    if more:
        return f"`{first}` … ({len(more) + 1} lines)"
    return f"`{text}`" if text else ""


# --- settings and parameters ------------------------------------------------------


def settings_table() -> str:
    from chatapp.conf import ChatappSettings, ModelSettings, ServerSettings
    from compaction.conf import CompactionSettings

    groups = (ServerSettings, ModelSettings, ChatappSettings, CompactionSettings)
    rows = [
        [code(one.variable), default_of(one), one.text]
        for group in groups
        for one in group.declarations()
        if one.variable
    ]
    return table(("variable", "default", "what it does"), rows)


def default_of(declared: Any) -> str:
    from chatapp.formatting import unit_of

    if declared.shown is not None:
        return declared.shown
    if declared.default == ():
        return ""
    return f"{code(declared.default)} {unit_of(declared.default, declared.unit)}".strip()


def parameters_table() -> str:
    from compaction.engine.parameters import Profile
    from compaction.engine.profile import PRESETS, parameter_choices, parameter_groups

    facts = {item.name: item.metadata for item in fields(Profile)}
    headings = ("parameter", *map(code, PRESETS), "what it does", "variable")
    parts = []
    for title, names in parameter_groups().items():
        rows = [
            [
                code(name),
                *(code(getattr(preset, name)) for preset in PRESETS.values()),
                f"{facts[name]['help']}{limits_of(facts[name], parameter_choices(name))}",
                code(facts[name]["variable"]),
            ]
            for name in names
        ]
        parts.append(f"### {title}\n\n{table(headings, rows)}")
    return "\n".join(parts) + "\n"


def limits_of(fact: Any, choices: Sequence[str]) -> str:
    if choices:
        return f" One of {', '.join(map(code, choices))}."
    if "minimum" not in fact:
        return ""
    return f" From {fact['minimum']:,} to {fact['maximum']:,} {fact['unit']}".rstrip() + "."


# --- codes ------------------------------------------------------------------------


def reasons_table() -> str:
    from compaction.engine.policy.reasons import Reason

    rows = [[code(reason.value), reason.label, reason.measures] for reason in Reason]
    return table(("reason", "label", "what the trigger measures"), rows)


def run_codes_table() -> str:
    from compaction.vocabulary import EXPLANATIONS

    rows = [
        [code(name), words.happened, words.means, words.remedy]
        for name, words in EXPLANATIONS.items()
    ]
    return table(("code", "what happened", "what it means", "what to do"), rows)


def turn_codes_table() -> str:
    from chatapp.llm.error_kinds import REACTIONS as FIRST
    from chatapp.llm.error_kinds import SENTENCES, ErrorKind, Reaction

    rows = [
        [code(kind.value), REACTIONS[FIRST.get(kind, Reaction.REPORT).value], SENTENCES[kind]]
        for kind in ErrorKind
    ]
    return table(("code", "first reaction", "the sentence for the user"), rows)


# --- what is read from the source -------------------------------------------------


def metrics_table() -> str:
    from compaction.monitoring import metrics

    rows = []
    for call, _ in calls_in(metrics):
        if not called(call).endswith("MetricFamily"):
            continue
        name, text = (evaluated(argument, metrics) for argument in call.args[:2])
        labels = [word.value for word in call.keywords if word.arg == "labels"]
        named = ",".join(evaluated(labels[0], metrics)) if labels else ""
        kind = called(call).removesuffix("MetricFamily").lower()
        shown = f"{name}_total" if kind == "counter" else name
        rows.append([code(f"{shown}{{{named}}}" if named else shown), kind, text])
    return table(("metric", "kind", "what it says"), rows)


def checks_table() -> str:
    from chatapp import checks as of_chatapp
    from compaction import checks as of_compaction

    rows: dict[str, list[str]] = {}
    for module in (of_chatapp, of_compaction):
        for call, function in calls_in(module):
            words = {word.arg: word.value for word in call.keywords}
            if called(call) in ("Error", "Warning", "Info") and "id" in words:
                check = evaluated(words["id"], module)
                said = countable(call.args[0])
                if sum(map(str.isalpha, said)) < LEAST_LETTERS:
                    said = (ast.get_docstring(function) or "").partition("\n")[0]
                rows[check] = [f"{code(check)}{when_checked(function)}", said]
    return table(("id", "what it says"), [rows[check] for check in sorted(rows)])


def when_checked(function: ast.FunctionDef) -> str:
    register = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
    return "*" if "deploy=True" in register else "†" if "Tags.database" in register else ""


def countable(message: ast.expr) -> str:
    """Return a message with “…” for what it fills in."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if not isinstance(message, ast.JoinedStr):
        return ""
    parts = [part.value if isinstance(part, ast.Constant) else "…" for part in message.values]
    return "".join(map(str, parts))


def calls_in(module: ModuleType) -> Iterator[tuple[ast.Call, ast.FunctionDef]]:
    """Return every call of a module's functions, in the order of the source."""
    for function in ast.parse(inspect.getsource(module)).body:
        if isinstance(function, ast.FunctionDef):
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
                yield call, function


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def evaluated(node: ast.expr, module: ModuleType) -> Any:
    """Return the value of a constant expression of a module."""
    return eval(compile(ast.Expression(node), module.__name__, "eval"), vars(module))


# --- pages ------------------------------------------------------------------------

TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "parameters": parameters_table,
    "reasons": reasons_table,
    "run_codes": run_codes_table,
    "turn_codes": turn_codes_table,
    "metrics": metrics_table,
    "checks": checks_table,
}


def pages() -> list[Path]:
    """Return the pages that have tables."""
    files = sorted((ROOT / "docs").rglob("*.md"))
    return [path for path in files if MARKED.search(path.read_text())]


def written_anew(text: str) -> str:
    """Return a page with its tables as the code has them."""
    return MARKED.sub(lambda found: found["begin"] + TABLES[found["name"]]() + found["end"], text)


def outdated() -> list[Path]:
    return [path for path in pages() if written_anew(path.read_text()) != path.read_text()]


def main(arguments: Sequence[str]) -> int:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    found = outdated()
    for path in found:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is outdated; run python -m tests.docs_tables.")
        else:
            path.write_text(written_anew(path.read_text()))
            print(f"{path.relative_to(ROOT)} is written anew.")
    return int(bool(found) and "--check" in arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

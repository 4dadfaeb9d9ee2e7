"""Every pattern of the project takes time in proportion to its text, whatever the text.

Models, tools and users write what is searched: forty thousand dots must cost no more than any
other forty thousand characters.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from re import _parser
from typing import Any

import pytest

import chatapp
import compaction
from chatapp.messages.patterns import LazyPattern
from tests.growth import grows_too_fast, takes_longer

SHORT = 800
QUICK_SECONDS = 0.0006
"""What takes less for 800 characters does not look at each of them from each other one: on a quick
machine a pattern that does takes three times as long."""
SEARCHES = frozenset({"search", "finditer", "findall", "sub", "subn", "split"})
UNITS = (*' .a1-_A\n[<"/:@。中', "a ", "a.", ". ", "1,", "a-", "A ", "a1", "aA_", "\n ", "1.", "- ")
# Their texts are short: whoever calls them cuts them before.
OF_SHORT_TEXTS = frozenset({"chatapp.llm.error_parsing._TAG"})


def _modules() -> Iterator[Any]:
    for package in (chatapp, compaction):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations." not in module.name:
                yield importlib.import_module(module.name)


def _within(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    """Yield the patterns of a value: itself, those of a collection, those of a class."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, LazyPattern):
        yield value.compiled
    elif depth > 3:
        return
    elif isinstance(value, Mapping):
        yield from _of_all([*value.keys(), *value.values()], depth)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _of_all(value, depth)
    elif isinstance(value, type) and value.__module__.startswith(("chatapp.", "compaction.")):
        yield from _of_all(vars(value).values(), depth)


def _of_all(values: Iterable[Any], depth: int) -> Iterator[re.Pattern[str]]:
    for value in values:
        yield from _within(value, depth + 1)


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Return all patterns that modules hold, each once, by where it stands."""
    found: dict[re.Pattern[str], str] = {}
    for module in _modules():
        for name, value in vars(module).items():
            if not name.startswith("__"):
                for number, one in enumerate(_within(value)):
                    found.setdefault(one, f"{module.__name__}.{name}{f'#{number}' * (number > 0)}")
    return {name: one for one, name in found.items()}


@cache
def _uses() -> Mapping[str, set[str]]:
    """Return what is called of each name in capitals; a private one has its module before it."""
    uses: dict[str, set[str]] = {}
    for package in (chatapp, compaction):
        root = Path(package.__path__[0])
        for path in root.rglob("*.py"):
            own = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
            text = path.read_text("utf-8")
            for name, method in re.findall(r"\b(_?[A-Z_]{2,60})\.(\w+)\(", text):
                key = f"{own}.{name}" if name.startswith("_") else name
                uses.setdefault(key, set()).add(method)
    return uses


def is_searched(name: str) -> bool:
    """Whether a pattern is looked for everywhere in a text, and not at one place alone."""
    place = name.partition("#")[0]
    own = place.rsplit(".", 1)[1]
    used = _uses().get(place if own.startswith("_") else own)
    return used is None or bool(SEARCHES & used)


def _letters(parsed: Any) -> Iterator[str]:
    """Yield a character for each part of a parsed pattern."""
    for operation, argument in parsed:
        kind = str(operation)
        if kind == "LITERAL":
            yield chr(argument)
        elif kind == "IN":
            yield from (chr(one[0] if isinstance(one, tuple) else one) for one in _codes(argument))
        elif kind == "BRANCH":
            for branch in argument[1]:
                yield from _letters(branch)
        elif kind == "ATOMIC_GROUP":
            yield from _letters(argument)
        elif kind in ("SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from _letters(argument[-1])
        elif kind in ("ASSERT", "ASSERT_NOT"):
            yield from _letters(argument[1])


def _codes(members: Any) -> Iterator[Any]:
    return (value for kind, value in members if str(kind) in ("LITERAL", "RANGE"))


def adversaries(pattern: re.Pattern[str]) -> list[str]:
    """Return what is repeated to trouble a pattern: its own characters, alone and in pairs."""
    own = list(dict.fromkeys(_letters(_parser.parse(pattern.pattern, pattern.flags))))[:24]
    pairs = [one + other for one in own[:5] for other in own[:5]]
    return list(dict.fromkeys([*own, *UNITS, *pairs]))


def is_slow(pattern: re.Pattern[str], unit: str, *, searched: bool = True) -> bool:
    """Whether a pattern takes out of all proportion longer for sixteen times the text."""

    def look(length: int) -> None:
        # What follows matches nothing, so that every try at a match ends in vain.
        text = (unit * (length // len(unit) + 1))[:length] + "\0"
        if searched:
            for _ in pattern.finditer(text):
                pass
        else:
            pattern.match(text)
            pattern.fullmatch(text)

    return takes_longer(lambda: look(SHORT), QUICK_SECONDS) and grows_too_fast(
        look, SHORT, times=16, quick=0
    )


def test_all_patterns_are_collected():
    names = {name.rsplit(".", 1)[0] for name in patterns()}
    assert len(patterns()) > 300
    assert {"compaction.engine.strategies.acceptance", "chatapp.llm.error_parsing"} <= names


def test_every_pattern_is_linear():
    faults = [
        f"{name} on {unit!r}"
        for name, pattern in patterns().items()
        if isinstance(pattern.pattern, str) and name not in OF_SHORT_TEXTS
        for unit in adversaries(pattern)
        if is_slow(pattern, unit, searched=is_searched(name))
    ]
    assert not faults, "These patterns take too long for such texts:\n" + "\n".join(faults)


@pytest.mark.parametrize(("source", "unit"), [(r"[.!?]+\s+|\n+", "."), (r"(?:\S+\s+){0,3}$", "a")])
def test_a_quadratic_pattern_is_noticed(source, unit):
    assert is_slow(re.compile(source), unit)


def test_a_pattern_with_limits_is_none():
    assert not is_slow(re.compile(r"\s{0,80}x"), " ")

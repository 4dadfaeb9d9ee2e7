"""Conversations with planted facts, rules, corrections and outcomes, and what a text knows of them.

Everything is drawn from a seed that is printed. A fact counts as known where its value and the word
that says what it is about stand in one line.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from compaction.engine.types import Item, ToolCall
from tests.facts import SHAPES, DrawnFact, draw_fact

SAMPLES = Path(__file__).resolve().parent.parent.parent / "chatapp" / "samples"
PER_SHAPE = 2
OF_ONE_SHAPE = 24
STEP = 1_000_000
RULES = (
    "Never send invoices to the {a} before the {b} is signed.",
    "Do not touch the {a} tables without asking {c} first.",
    "The {a} must always be rounded per line, not per order.",
    "Only {c} may approve changes of the {b}.",
    "Always answer {c} in plain sentences, never in bullet lists.",
    "Don't call the {a} on Sundays.",
)
CHANGES = (
    ("The {a} runs on {old}.", "Sorry, forget that: the {a} runs on {new}."),
    ("The {a} meets at the {old} office.", "Correction: the {a} meets at the {new} office."),
    ("The owner of the {a} is {old}.", "The owner of the {a} is {new} now."),
    ("We ship the {a} with {old}.", "Actually, we ship the {a} with {new}."),
    ("The {a} is stored in {old}.", "The {a} has moved from {old} to {new}."),
)
OUTCOMES = (
    (
        "pytest -q {a}",
        "{n} passed in 3 s\nFAILED {a}::test_{b}\n{n} passed, 1 failed\nexit code: 1",
        "1 failed",
    ),
    (
        "make {a}",
        "compiling\nerror: {b} is missing in {a}.cfg\nmake: *** [all] Error 2",
        "{b} is missing",
    ),
    (
        "curl api/{a}",
        '{{"status": "refused {a}", "detail": {{"trace": [1, 2]}}, "id": "{b}-{n}"}}',
        "refused {a}",
    ),
)  # fmt: skip
NOUNS = (
    "ledger", "harbour", "archive", "orchard", "boiler", "turbine", "library", "bakery", "quarry",
    "festival", "mill", "museum", "ferry", "clinic", "printer", "garden", "tunnel", "choir",
)  # fmt: skip
NAMES = ("Ilse", "Okafor", "Marchetti", "Duong", "Priya", "Anselm", "Ximena", "Tarek")
VALUES = ("Rabbit", "Kestrel", "Basalt", "Juniper", "Copper", "Falcon", "Onyx", "Willow", "Amber",
          "Cobalt", "Saffron", "Marlin")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A statement that was corrected: what it is about, the value before and the one that holds."""

    topic: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A conversation, and what somebody who read it would know."""

    items: tuple[Item, ...]
    facts: tuple[DrawnFact, ...]
    rules: tuple[str, ...]
    changes: tuple[Change, ...]
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Shares of what a text knows; `forbidden` are old values that stand alone or last."""

    facts: float
    rules: float
    changes: float
    outcomes: float
    forbidden: tuple[str, ...]


def planted(seed: int, count: Callable[[str], int], *, turns: int = 60) -> Planted:
    """Return a conversation of that many turns: the samples' sentences, and planted lines."""
    chance = random.Random(seed)
    facts = [draw_fact(chance, shape=shape) for shape in SHAPES for _ in range(PER_SHAPE)]
    chance.shuffle(facts)
    nouns, names = list(NOUNS), list(NAMES)
    chance.shuffle(nouns)
    chance.shuffle(names)
    rules = [
        one.format(a=nouns[n], b=nouns[(n + 5) % len(nouns)], c=names[n % len(names)])
        for n, one in enumerate(RULES)
    ]
    values = chance.sample(VALUES, 2 * len(CHANGES))
    changes = [
        Change(topic=nouns[6 + n], old=values[2 * n], new=values[2 * n + 1])
        for n in range(len(CHANGES))
    ]
    said = _said(chance, facts, rules, changes, turns)
    items: list[Item] = []
    outcomes: list[str] = []
    for turn, (asked, answered) in enumerate(said):
        _add(items, count, role="user", text=asked)
        if turn % 5 == 3:
            outcomes.append(_call(items, count, chance, number=turn))
        _add(items, count, role="assistant", text=answered)
    return Planted(
        items=tuple(items),
        facts=tuple(facts),
        rules=tuple(rules),
        changes=tuple(changes),
        outcomes=tuple(outcomes),
    )


def of_one_shape(seed: int, shape: str, count: Callable[[str], int], *, turns: int = 60) -> Planted:
    """Return a conversation in which all facts are written in one way."""
    chance = random.Random(seed)
    facts = [draw_fact(chance, shape=shape) for _ in range(OF_ONE_SHAPE)]
    items: list[Item] = []
    for asked, answered in _said(chance, facts, (), (), turns):
        _add(items, count, role="user", text=asked)
        _add(items, count, role="assistant", text=answered)
    return Planted(items=tuple(items), facts=tuple(facts), rules=(), changes=(), outcomes=())


def _said(
    chance: random.Random,
    facts: Sequence[DrawnFact],
    rules: Sequence[str],
    changes: Sequence[Change],
    turns: int,
) -> list[tuple[str, str]]:
    """Return each turn's question and answer, with what is planted in them."""
    asked: list[list[str]] = [[] for _ in range(turns)]
    answered: list[list[str]] = [[] for _ in range(turns)]
    for fact in facts:
        (asked if chance.random() < 0.75 else answered)[chance.randrange(turns)].append(
            fact.sentence
        )
    for rule in rules:
        asked[chance.randrange(turns)].append(rule)
    for change, (before, after) in zip(changes, CHANGES, strict=False):
        first = chance.randrange(turns // 2)
        later = chance.randrange(first + 3, turns)
        words = {"a": change.topic, "old": change.old, "new": change.new}
        asked[first].append(before.format(**words))
        asked[later].append(after.format(**words))
    return [
        (_filled(chance, asked[turn], 2), _filled(chance, answered[turn], 4))
        for turn in range(turns)
    ]


def _filled(chance: random.Random, lines: list[str], most: int) -> str:
    texts = [*lines, *(chance.choice(_sentences()) for _ in range(chance.randint(1, most)))]
    chance.shuffle(texts)
    return " ".join(texts)


@lru_cache(maxsize=1)
def _sentences() -> tuple[str, ...]:
    """The samples' plain sentences, without digits, so that nothing in them looks planted."""
    found: list[str] = []
    for path in sorted(SAMPLES.glob("c*.json")):
        for message in json.loads(path.read_text())["messages"]:
            text = message.get("content")
            if isinstance(text, str) and message["role"] in ("user", "assistant"):
                found += re.split(r"(?<=[.!?])\s+", text)
    plain = [one for one in found if 30 < len(one) < 160 and not re.search(r"[\d`*{|]", one)]
    return tuple(dict.fromkeys(plain))


def _add(items: list[Item], count: Callable[[str], int], **fields: object) -> None:
    text = str(fields["text"])
    number = len(items) + 1
    items.append(Item(id=number, position=number * STEP, tokens=count(text) + 4, **fields))  # type: ignore[arg-type]


def _call(
    items: list[Item], count: Callable[[str], int], chance: random.Random, *, number: int
) -> str:
    """Add a call with its result, and return what must be known of it."""
    command, output, known = chance.choice(OUTCOMES)
    words = {"a": chance.choice(NOUNS), "b": chance.choice(NOUNS), "n": chance.randint(20, 900)}
    tool = "fetch" if command.startswith("curl") else "bash"
    arguments = json.dumps({"command" if tool == "bash" else "url": command.format(**words)})
    call = ToolCall(id=f"c{number}", name=tool, arguments=arguments)
    noise = "\n".join(f"step {n} of the {words['a']}" for n in range(chance.randint(3, 30)))
    body = output.format(**words)
    text = body if tool == "fetch" else f"{noise}\n{body}"
    _add(items, count, role="assistant", text="", tool_calls=(call,))
    _add(items, count, role="tool", text=text, tool_call_id=call.id, tool_name=tool)
    return known.format(**words)


def known_of(text: str, planted: Planted) -> Known:
    """Return what a text knows of what was planted."""
    lines = [line.casefold() for line in text.splitlines()]

    def stands(*words: str) -> bool:
        return any(all(word.casefold() in line for word in words) for line in lines)

    return Known(
        facts=_share([stands(fact.value, fact.topic) for fact in planted.facts]),
        rules=_share([stands(rule.rstrip(".")) for rule in planted.rules]),
        changes=_share([stands(one.new, one.topic) for one in planted.changes]),
        outcomes=_share([stands(one) for one in planted.outcomes]),
        forbidden=tuple(one.old for one in planted.changes if _is_forbidden(lines, one)),
    )


def _is_forbidden(lines: Sequence[str], change: Change) -> bool:
    """Whether the old value stands in a line about the same without the new one."""
    old, new, topic = change.old.casefold(), change.new.casefold(), change.topic.casefold()
    return any(old in line and topic in line and new not in line for line in lines)


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 1.0

"""Abridged histories: what they cost, and how much of what is asked for later they still name.

The second is what the weights of compaction/engine/importance.py were chosen by: of the real
conversations that are for tuning, those for checking were only looked at with the weights that came
of it (tests.real_data.split). A conversation is cut behind half, two thirds and four fifths of its
questions; a tail stays verbatim; counted is what was named before the cut and is named again
behind that tail, and what share of it the abridged history of a quarter or half the size names.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from compaction.engine.abridged import abridged_text, entries_of, entry_text
from compaction.engine.fidelity.entities import KIND_WEIGHTS, find_entities
from compaction.engine.fidelity.spellings import is_small_count
from compaction.engine.profile import PRESETS
from compaction.engine.types import Item, ToolCall
from tests import real_data
from tests.bench.measure import Row, cpu, peak_megabytes, repeat
from tests.bench.sizes import Sizes

PROFILE = replace(PRESETS["bisect"], abridged_total_chars_limit=10_000)
CUTS = (0.5, 0.65, 0.8)
SHARES = (0.25, 0.5)
FEWEST_QUESTIONS = 8
TAIL_CHARS = 5_000
SAID = """the parser reads every line and keeps what it cannot place so that a later pass may
look at it again we decided to use queues instead of locks because two workers wrote the same row
error timeout passed port cache index table request never always please check"""
WORDS = re.findall(r"\w+", SAID)


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    for count in sizes.abridged:
        items = _worked(count)
        spent = repeat(lambda items=items: entries_of(items, profile=PROFILE), sizes.windows)
        yield Row(name="abridge new messages", n=count, value=cpu(spent), unit="CPU ms")
        peak = peak_megabytes(lambda items=items: entries_of(items, profile=PROFILE))
        yield Row(name="abridge new messages, memory", n=count, value=peak, unit="MB more")
        entries = entries_of(items, profile=PROFILE)
        spent = repeat(lambda entries=entries: abridged_text(entries, PROFILE), sizes.windows)
        yield Row(name="choose and write entries", n=count, value=cpu(spent), unit="CPU ms")
    yield from _worth(sizes)


def _worked(count: int) -> list[Item]:
    """Return the messages of an agent that reads, edits and tests, with a seed of its own."""
    draw = random.Random(count)
    items: list[Item] = []
    while len(items) < count:
        path = f"src/part_{draw.randrange(count)}.py"
        calls = (
            _call("read", path=path),
            _call("edit", path=path, old=_words(draw), new=_words(draw)),
            _call("bash", command=f"pytest {path} -k case_{draw.randrange(count)}"),
        )
        asked = f"{_words(draw)} Ticket {draw.randrange(10_000, 99_999)}, see {path}."
        items.append(_item(len(items), "user", asked))
        for call in calls:
            items.append(_item(len(items), "assistant", "", call))
            items.append(_item(len(items), "tool", " ".join(_words(draw) for _ in range(20))))
        items.append(_item(len(items), "assistant", " ".join(_words(draw) for _ in range(5))))
    return items[:count]


def _words(draw: random.Random) -> str:
    return f"{' '.join(draw.choices(WORDS, k=draw.randrange(5, 15))).capitalize()}."


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id="again", name=name, arguments=json.dumps(arguments))


def _item(index: int, role: str, text: str, *calls: ToolCall) -> Item:
    return Item(
        id=index,
        role=role,
        text=text,
        position=(index + 1) * real_data.STEP,
        tool_calls=calls,
        tool_call_id="again" if role == "tool" else "",
    )


# --- what entries are worth -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """A conversation that was cut: its older part, and what of it is named again later."""

    kind: str
    head: Sequence[Item]
    needed: dict[str, float]

    def share(self, text: str) -> float:
        """Return how much of it a text names, in percent."""
        folded = text.casefold()
        known = sum(weight for key, weight in self.needed.items() if key in folded)
        return 100 * known / sum(self.needed.values())


def _worth(sizes: Sizes) -> Iterator[Row]:
    for half in ("tune", "hold"):
        known: dict[bool, dict[str, list[float]]] = {on: defaultdict(list) for on in (False, True)}
        for case in _cases(half, sizes.abridged_conversations):
            entries = entries_of(case.head, profile=PROFILE)
            whole = sum(len(entry_text(one, PROFILE)) + 1 for one in entries)
            for share in SHARES:
                room = min(int(whole * share), PROFILE.abridged_total_chars_limit)
                for on, found in known.items():
                    profile = replace(PROFILE, abridged_total_chars_limit=room, importance=on)
                    found[case.kind].append(case.share(abridged_text(entries, profile)))
        for on, found in known.items():
            if found:
                # Each kind counts the same, however many conversations of it there are.
                value = mean(mean(shares) for shares in found.values())
                name = f"named again, {'by importance' if on else 'newest first'}, {half}"
                count = sum(map(len, found.values()))
                yield Row(name=name, n=count, value=value, unit="% known")


def _cases(half: str, most: int) -> Iterator[Hindsight]:
    chosen = [one for one in real_data.conversations() if real_data.split(one.name) == half]
    for one in chosen[:most]:
        items = real_data.to_items(one.messages)
        asked = [index for index, item in enumerate(items) if item.is_question]
        if len(asked) < FEWEST_QUESTIONS:
            continue
        tail_chars = min(TAIL_CHARS, sum(len(item.text) for item in items) // 10)
        for share in CUTS:
            cut = end = asked[int(len(asked) * share)]
            size = 0
            while end < len(items) and size < tail_chars:
                size += len(items[end].text)
                end += 1
            again, kept = _named(items[end:]), _named(items[cut:end])
            named = _named(items[:cut])
            needed = {key: named[key] for key in named.keys() & again.keys() - kept.keys()}
            if needed:
                yield Hindsight(kind=one.kind, head=items[:cut], needed=needed)


def _named(items: Sequence[Item]) -> dict[str, float]:
    """Return what people and models name in words and calls, with its weight."""
    found: dict[str, float] = {}
    for item in items:
        if item.role != "tool":
            calls = "\n".join(call.arguments[:2_000] for call in item.tool_calls)
            for one in find_entities(f"{item.text[:6_000]}\n{calls}"):
                if len(one.key) > 2 and not is_small_count(one.key):
                    found[one.key] = KIND_WEIGHTS.get(one.kind, 1.0)
    return found

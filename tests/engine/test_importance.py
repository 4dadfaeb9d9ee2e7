"""What an exchange is worth: five signals, each with a word."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from compaction.engine import importance
from compaction.engine.abridged import (
    Entry,
    abridged_text,
    entries_of,
    entry_from_json,
    kept_entries,
    without_names,
)
from compaction.engine.importance import (
    CORRECTION,
    DECISION,
    MENDING,
    MOST_NAMED,
    PIN,
    named_again,
    things_named,
    weighed,
)
from compaction.engine.profile import PRESETS
from compaction.engine.types import Item, ToolCall
from tests.facts import seed

STEP = 1_000_000
PROFILE = replace(PRESETS["bisect"], abridged_total_chars_limit=10_000)


def talk(*texts: str) -> list[Item]:
    """Return questions and answers in turn."""
    return [
        Item(id=n, role=("user", "assistant")[n % 2], text=text, position=(n + 1) * STEP)
        for n, text in enumerate(texts)
    ]


def worked(*steps: tuple[str, str, str]) -> list[Item]:
    """Return an exchange of calls: tool, argument and result each; ids repeat as some servers'."""
    items = [Item(id=0, role="user", text="Do it.", position=STEP)]
    for tool, argument, result in steps:
        arguments = json.dumps({"command" if tool == "bash" else "path": argument})
        call = ToolCall(id="c", name=tool, arguments=arguments)
        items.append(Item(id=len(items), role="assistant", tool_calls=(call,)))
        items.append(Item(id=len(items), role="tool", tool_call_id="c", text=result))
    return items


def words(items: list[Item], **more: frozenset[int]) -> list[tuple[str, ...]]:
    return [one.why for one in entries_of(items, profile=PROFILE, **more)]


@pytest.mark.parametrize(
    "text",
    [
        "No, use the staging server instead.",
        "Actually, the meeting has moved to Friday.",
        "Entschuldigung, nicht München, sondern Ulm.",
        "En realidad, mejor a las nueve.",
        "不对，改成星期五。",
    ],
)
def test_a_correction_counts_where_the_user_makes_it(text: str):
    assert CORRECTION in words(talk(text, "Fine."))[0]
    assert CORRECTION not in words(talk("What now?", text))[0]


@pytest.mark.parametrize(
    "text", ["We decided to use SQLite.", "Never push to main.", "Wir haben uns dafür entschieden.",
             "我们决定用这个方案。"],
)  # fmt: skip
def test_a_decision_and_a_rule_count(text: str):
    assert DECISION in words(talk(text, "Fine."))[0]


@pytest.mark.parametrize("text", ["What time is it?", "Thanks!", "Show me the list of files."])
def test_other_words_count_nothing(text: str):
    assert words(talk(text, "There you are.")) == [()]


def test_an_error_counts_with_its_mending():
    failed, passed = "Traceback (most recent call last)\nValueError: bad", "3 passed"
    assert words(worked(("bash", "pytest", failed), ("bash", "pytest", passed))) == [(MENDING,)]
    assert words(worked(("bash", "pytest", failed), ("bash", "pytest", failed))) == [()]
    assert words(worked(("bash", "pytest", passed), ("bash", "pytest", failed))) == [()]
    assert words(worked(("edit", "a.py", "Error: not found"), ("edit", "a.py", "ok"))) == [
        (MENDING,)
    ]


def test_an_exit_status_is_an_error_in_every_language():
    mended = (("bash", "make", "なにか\nexit code 2"), ("bash", "make", "なにか\nexit code 0"))
    assert words(worked(*mended)) == [(MENDING,)]


def test_a_text_that_was_only_looked_at_is_no_error():
    shown = "def parse():\n    raise ValueError: error"
    assert words(worked(("read", "a.py", shown), ("read", "b.py", "fine"))) == [()]
    assert words(worked(("bash", "cat a.log", "ERROR: bad"), ("bash", "make", "ok"))) == [()]


def test_a_pinned_message_counts():
    items = talk("One?", "1.", "Two?", "2.")
    assert words(items, pinned=frozenset({2 * STEP})) == [(PIN,), ()]


def test_what_is_named_again_counts_for_who_named_it_first():
    named = [{"a", "b"}, {"a", "c"}, {"a", "c", "d"}]
    assert named_again([]) == []
    assert named_again(named) == [["a"], ["c"], []]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("The order is AB-77120.", "Where is AB-77120?"),
        ("It is in src/app/main.py.", "Open src/app/main.py."),
        ("It costs 4599 euros.", "Why 4599?"),
        ("订单号是 QX99817。", "QX99817 到哪里了？"),
    ],
)
def test_an_identifier_a_path_and_a_number_are_named_again(first: str, again: str):
    (older,), newer = words(talk(first, "Good.", again, "Soon."))
    assert older.startswith("named again later: ")
    assert newer == ()


def test_small_counts_and_names_are_not_named_again():
    assert words(talk("Berlin has 3 of 12.", "Yes.", "Berlin, 3 or 12?", "Yes.")) == [(), ()]


def test_the_new_messages_decide_what_of_the_earlier_ones_is_named_again():
    earlier = entries_of(talk("The order is AB-77120.", "Good."), profile=PROFILE)
    assert (earlier[0].score, earlier[0].why) == (0.0, ())
    later = entries_of(talk("Where is AB-77120?"), earlier=earlier, profile=PROFILE)
    assert later[0].score == 1.0
    assert later[0].why == ("named again later: ab-77120",)
    # Weighed once more, nothing is counted twice.
    assert entries_of([], earlier=later, profile=PROFILE) == later


def long_talk(draw: random.Random, *, exchanges: int) -> list[Item]:
    """Return exchanges that name orders, old and new ones, and change the subject."""
    said = []
    for _ in range(exchanges):
        order, path = f"RX-{draw.randrange(10_000, 10_060)}", f"src/part_{draw.randrange(40)}.py"
        said += [f"What of {order}? See {path}.", f"It stands in {path}, with 4{draw.random()}."]
    return talk(*said)


def stored(entries: list[Entry]) -> list[Entry]:
    found = [entry_from_json(json.loads(json.dumps(one.as_json()))) for one in entries]
    return [one for one in found if one is not None]


def test_weighed_step_by_step_entries_are_worth_what_they_are_weighed_at_once():
    draw = random.Random(seed())
    items = long_talk(draw, exchanges=120)
    whole = entries_of(items, profile=PROFILE)
    assert len({one.score for one in whole}) > 2
    steps: list[Entry] = []
    cuts = sorted(draw.sample(range(1, len(items)), 12))
    for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True):
        steps = entries_of(items[start:end], earlier=stored(steps), profile=PROFILE)
    assert steps == whole
    # Those of an earlier program do not say what they name.
    older = [without_names(one) for one in entries_of(items[: cuts[5]], profile=PROFILE)]
    assert "names" not in older[0].as_json()
    assert entries_of(items[cuts[5] :], earlier=stored(older), profile=PROFILE) == whole


@pytest.mark.parametrize("before", [20, 400])
def test_texts_are_read_of_the_new_exchanges_and_the_last_earlier_one(
    before: int, monkeypatch: pytest.MonkeyPatch
):
    items = long_talk(random.Random(seed()), exchanges=before + 5)
    earlier = stored(entries_of(items[: 2 * before], profile=PROFILE))
    read: list[str] = []
    look = importance.find_entities
    monkeypatch.setattr(importance, "find_entities", lambda text: read.append(text) or look(text))
    entries_of(items[2 * before :], earlier=earlier, profile=PROFILE)
    asked = {text for text in read if text.startswith("What of ")}
    # Two texts and five lists of each of the five and of the one, however many stand before.
    assert len(read) == 6 * 7
    assert asked <= {item.text for item in items[2 * before - 2 :]}


def test_words_and_names_add_up_and_names_have_a_bound():
    few = [f"id-{n}" for n in range(2)]
    many = [f"id-{n}" for n in range(50)]
    assert weighed((CORRECTION, DECISION, MENDING, PIN), few)[0] == 1 + 0.5 + 1 + 4 + 2
    assert weighed((), many)[0] == MOST_NAMED
    assert weighed((), many)[1] == ("named again later: id-0, id-1, id-2",)
    assert weighed(("an older version's word",), ()) == (0.0, ())


def test_what_was_decided_early_outlives_what_was_only_said():
    draw = random.Random(seed())
    number = f"RX-{draw.randrange(10_000, 99_999)}"
    said = [f"We decided to use {number} for the ledger.", "Good."]
    for _ in range(30):
        said += [f"Tell me a story, please ({draw.random()}).", "Once upon a time. " * 20]
    said += [f"What did we say of {number}?", "It is for the ledger."]
    entries = entries_of(talk(*said), profile=PROFILE)
    small = replace(PROFILE, abridged_total_chars_limit=2_000)

    assert number in abridged_text(entries, small)
    kept = kept_entries(entries, small)
    assert [one.position for one in kept] == sorted(one.position for one in kept)
    assert kept[0] == entries[0]
    newest = kept_entries(entries, replace(small, importance=False))
    assert newest == entries[-len(newest) :]


def test_a_text_of_a_megabyte_is_read_at_its_ends():
    far = "x " * 500_000
    assert things_named([f"AB-77120 {far} CD-99131"]) >= {"ab-77120", "cd-99131"}
    assert things_named([f"{far} EF-55512 {far}"]) == frozenset()
    assert weighed((), ())[0] == Entry().score

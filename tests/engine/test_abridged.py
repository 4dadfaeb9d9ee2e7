"""The abridged history: entries, their template, what is left out, and what is stored."""

from __future__ import annotations

import json
import random
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from compaction.engine.abridged import (
    Entry,
    abridged_text,
    entries_of,
    entry_from_json,
    entry_text,
    kept_entries,
    truncate_middle,
)
from compaction.engine.parameters import Profile
from compaction.engine.profile import PRESETS, build
from compaction.engine.rendering import escape_node_tags
from compaction.engine.types import Item, ToolCall
from tests.facts import seed

STEP = 1_000_000
# What the established system has.
PROFILE = build(PRESETS["bisect"], {"abridged_total_chars_limit": 10_000, "importance": False})


def changed(**values: Any) -> Profile:
    return replace(PROFILE, **values)


def call(call_id: str, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))


def talk(*said: Any, start: int = 1) -> list[Item]:
    """Return items: `("user", "Hi")`, `("assistant", "", call, …)`, `("tool", "out", "c1")`."""
    items = []
    for number, (role, text, *more) in enumerate(said, start):
        calls = tuple(one for one in more if isinstance(one, ToolCall))
        answered = next((one for one in more if isinstance(one, str)), "")
        items.append(
            Item(
                id=number,
                role=role,
                text=text,
                position=number * STEP,
                tool_calls=calls,
                tool_call_id=answered,
            )
        )
    return items


# --- truncating -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (-1, ""),
        (0, ""),
        (1, "."),
        (2, ".."),
        (3, "..."),
        (4, "...p"),
        (5, "a...p"),
        (9, "abc...nop"),
        (10, "abc...mnop"),
        (15, "abcdef...klmnop"),
        (16, "abcdefghijklmnop"),
        (17, "abcdefghijklmnop"),
    ],
)
def test_a_text_is_cut_in_its_middle(limit: int, expected: str):
    assert truncate_middle("abcdefghijklmnop", limit) == expected


@pytest.mark.parametrize("text", ["", "é", "日本語のながい文", "😀😀😀😀😀😀", "a\nb\nc\nd\ne"])
def test_a_cut_text_has_as_many_characters_as_allowed(text: str):
    for limit in range(-2, len(text) + 2):
        cut = truncate_middle(text, limit)
        assert len(cut) == max(0, min(limit, len(text)))


def test_nothing_is_cut_from_an_empty_text_at_no_limit():
    assert truncate_middle("", 0) == truncate_middle("", -5) == ""


# --- the template ---------------------------------------------------------------------------------

EXAMPLE = """<user>
Fix the authentication bug in login.js
</user>
<agent_actions>
    <files_modified>
        /src/auth/login.js
    </files_modified>
    <files_viewed>
        /src/utils/jwt.js
    </files_viewed>
    <terminal_commands>
        npm test auth
    </terminal_commands>
</agent_actions>
<agent_response>
Fixed the token validation logic. The bug was caused by incorrect expiration time comparison.
</agent_response>"""


def example() -> list[Item]:
    return talk(
        ("user", "Fix the authentication bug in login.js"),
        (
            "assistant",
            "I look.",
            call("c1", "view", path="/src/auth/login.js"),
            call("c2", "view", path="/src/utils/jwt.js"),
        ),
        ("tool", "…", "c1"),
        ("tool", "…", "c2"),
        (
            "assistant",
            "",
            call("c3", "str-replace-editor", command="str_replace", path="/src/auth/login.js"),
        ),
        ("tool", "ok", "c3"),
        ("assistant", "", call("c4", "launch-process", command="npm test auth")),
        ("tool", "passed", "c4"),
        (
            "assistant",
            "Fixed the token validation logic. The bug was caused by incorrect expiration time "
            "comparison.",
        ),
    )


def test_the_established_example_is_written_in_the_templates_order():
    text = abridged_text(entries_of(example(), profile=PROFILE), PROFILE)

    assert text == EXAMPLE
    assert len(text) == 421


def test_a_question_without_an_answer_is_interrupted_or_goes_on():
    first, last = entries_of(talk(("user", "hi"), ("user", "hi")), profile=PROFILE)

    assert (first.state, last.state) == ("interrupted", "continues")
    assert entry_text(first, PROFILE) == "<user>\nhi\n</user>\n<agent_was_interrupted/>"
    assert entry_text(last, PROFILE) == "<user>\nhi\n</user>\n<agent_continues/>"
    assert len(entry_text(first, PROFILE)) == 42
    assert len(entry_text(last, PROFILE)) == 36


def test_created_and_deleted_files_stand_between_modified_and_viewed_ones():
    entry = Entry(
        user="u", modified=("m",), created=("c",), deleted=("d",), viewed=("v",), commands=("x",)
    )
    tags = re.findall(r"<(\w+)>", entry_text(entry, PROFILE))
    assert tags == [
        "user",
        "agent_actions",
        "files_modified",
        "files_created",
        "files_deleted",
        "files_viewed",
        "terminal_commands",
    ]


def test_of_twelve_files_ten_are_listed_and_two_counted():
    entry = Entry(viewed=tuple(f"f{number:02d}" for number in range(12)), state="answered")
    lines = entry_text(entry, PROFILE).splitlines()

    assert lines[5:15] == [f"        f{number:02d}" for number in range(10)]
    assert lines[15] == "        ... 2 more files"


def test_commands_are_listed_once_in_their_order_and_counted_as_commands():
    entry = Entry(commands=tuple(f"run {number}" for number in (3, 1, 3, 2, 1)))
    text = entry_text(entry, changed(abridged_num_terminal_commands=2))

    assert "        run 3\n        run 1\n        ... 1 more commands\n" in text


def test_a_list_of_no_lines_is_left_out():
    entry = Entry(viewed=("a",), commands=("x",))
    text = entry_text(entry, changed(abridged_num_files_viewed=0))

    assert "files_viewed" not in text
    assert "terminal_commands" in text
    assert "agent_actions" not in entry_text(entry, changed(abridged_action_chars_limit=0))


def test_each_part_is_cut_to_its_own_limit():
    entry = Entry(user="u" * 50, response="r" * 50, commands=("c" * 50,), state="answered")
    text = entry_text(
        entry,
        changed(
            abridged_user_message_chars_limit=9,
            abridged_agent_response_chars_limit=10,
            abridged_action_chars_limit=11,
        ),
    )
    assert "<user>\nuuu...uuu\n</user>" in text
    assert "<agent_response>\nrrr...rrrr\n</agent_response>" in text
    assert "\n        cccc...cccc\n" in text


def test_a_command_of_many_lines_is_one_line():
    items = talk(("user", "u"), ("assistant", "", call("c", "bash", command="cat <<E\n\ta\x00\nE")))
    (entry,) = entries_of(items, profile=PROFILE)

    assert entry.commands == ("cat <<E a E",)


HOSTILE = [
    "</user>",
    "</ USER >",
    "< /user>",
    "</supervisor>",
    "</summary>",
    "</abridged_history>",
    "</agent_response>",
    "</agent_actions>",
    "</files_viewed>",
    "</terminal_commands>",
    "<user>",
    "<agent_continues/>",
]


@pytest.mark.parametrize("tag", HOSTILE)
def test_no_text_opens_or_closes_a_tag(tag: str):
    def shown(word: str) -> str:
        entry = Entry(
            user=f"a {word} b",
            response=f"c {word} d",
            viewed=(f"e{word}f",),
            commands=(f"g {word} h",),
            state="answered",
        )
        return entry_text(entry, PROFILE)

    assert shown(tag).count(tag) == shown("word").count(tag)
    assert shown(tag) == shown(tag.replace("<", "&lt;"))


def test_other_tags_and_comparisons_stay_as_they_are():
    text = "if a < user and <div></div> <users> </username> 1</2"
    assert escape_node_tags(text) == text.replace("< user", "&lt; user")


def test_no_cutting_makes_a_tag():
    draw = random.Random(seed())
    for _ in range(200):
        entry = Entry(user="".join(draw.choices(["</user>", "x", "</", "user>"], k=30)))
        shown = changed(abridged_user_message_chars_limit=draw.randrange(60))
        assert entry_text(entry, shown).count("</user>") == 1


# --- from messages --------------------------------------------------------------------------------


def test_the_last_answer_without_calls_is_the_response():
    items = talk(
        ("user", "q"),
        ("assistant", "First."),
        ("assistant", "Now I look.", call("c", "read", path="a")),
        ("tool", "x", "c"),
        ("assistant", "Last."),
        ("assistant", "  "),
    )
    (entry,) = entries_of(items, profile=PROFILE)
    assert (entry.response, entry.state, entry.viewed) == ("Last.", "answered", ("a",))


def test_files_stand_in_one_list_each_unique_and_sorted():
    items = talk(
        ("user", "q"),
        (
            "assistant",
            "",
            call("1", "read", path="b"),
            call("2", "read", path="a"),
            call("3", "read", path="b"),
            call("4", "edit", path="z"),
            call("5", "read", path="z"),
            call("6", "Write", file_path="n"),
            call("7", "edit", path="n"),
            call("8", "remove-files", file_paths=["a", "gone"]),
        ),
        ("tool", "File created successfully at: n", "6"),
    )
    (entry,) = entries_of(items, profile=PROFILE)
    assert entry.modified == ("z",)
    assert entry.created == ("n",)
    assert entry.deleted == ("a", "gone")
    assert entry.viewed == ("b",)


def test_a_conversation_that_begins_without_a_question_has_an_entry():
    items = talk(("system", "s"), ("assistant", "", call("c", "bash", command="ls")), ("user", "q"))
    first, second = entries_of(items, profile=PROFILE)

    assert (first.user, first.commands, first.state) == ("", ("ls",), "interrupted")
    assert (second.user, second.position) == ("q", 3 * STEP)


def test_notes_and_system_messages_ask_and_answer_nothing():
    note = Item(id=9, role="user", text="A note.", position=5 * STEP, is_note=True)
    items = [*talk(("user", "q"), ("assistant", "a")), note]

    assert [one.user for one in entries_of(items, profile=PROFILE)] == ["q"]
    assert entries_of([note, *talk(("system", "s"))], profile=PROFILE) == []


def test_an_image_that_no_word_names_has_a_mark():
    asked = Item(id=1, role="user", text="What is it?", images=2)
    named = Item(id=2, role="user", text="And this?\n[image a.png, 3 KB]", images=1)
    entries = entries_of([asked, named], profile=PROFILE)

    assert entries[0].user == "What is it?\n[image]\n[image]"
    assert entries[1].user == "And this?\n[image a.png, 3 KB]"


def test_a_turn_goes_on_behind_the_earlier_summary():
    items = example()
    for cut in range(1, len(items)):
        older = entries_of(items[:cut], profile=PROFILE)
        stored = [entry_from_json(json.loads(json.dumps(one.as_json()))) for one in older]
        both = entries_of(items[cut:], earlier=[one for one in stored if one], profile=PROFILE)

        assert abridged_text(both, PROFILE) == EXAMPLE
        assert both[0].position == STEP


def test_a_turn_that_never_went_on_was_interrupted():
    earlier = entries_of(talk(("user", "one")), profile=PROFILE)
    entries = entries_of(talk(("user", "two"), start=2), earlier=earlier, profile=PROFILE)

    assert [one.state for one in entries] == ["interrupted", "continues"]


def test_without_new_messages_the_earlier_entries_stay_as_they_were():
    earlier = entries_of([*example(), *talk(("user", "And?"), start=10)], profile=PROFILE)

    assert entries_of([], earlier=earlier, profile=PROFILE) == earlier
    assert entries_of([], profile=PROFILE) == []
    assert abridged_text([], PROFILE) == ""


# --- what fits ------------------------------------------------------------------------------------


def exchanges(*sizes: int) -> list[Entry]:
    """Return entries of so many characters: 24 are the tags and the lines of one."""
    mark = len("<user>\n\n</user>\n<agent_was_interrupted/>")
    return [
        Entry(user="x" * (size - mark), state="interrupted", position=number)
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("total", "kept"),
    [
        (200, [2]),
        (300, [2]),
        # The end of the line between two entries counts.
        (301, [1, 2]),
        (401, [1, 2]),
        (402, [0, 1, 2]),
    ],
)
def test_the_newest_entries_are_kept_up_to_the_total(total: int, kept: list[int]):
    entries, profile = exchanges(100, 100, 200), changed(abridged_total_chars_limit=total)

    assert [one.position for one in kept_entries(entries, profile)] == kept
    assert len(abridged_text(entries, profile)) <= total


def test_the_first_that_does_not_fit_ends_it():
    entries, profile = exchanges(50, 300, 100), changed(abridged_total_chars_limit=250)

    assert [one.position for one in kept_entries(entries, profile)] == [2]


def test_without_a_limit_for_all_there_is_no_abridged_history():
    none = changed(abridged_total_chars_limit=0)
    assert abridged_text(exchanges(100), none) == ""
    assert kept_entries(exchanges(100), none) == []


def largest() -> Entry:
    """Return an entry of which every part is as large as it may be: 13,000 characters and tags."""
    lists = {
        name: tuple(f"{name}{number}" + "p" * 190 for number in range(10))
        for name in ("modified", "created", "deleted", "viewed", "commands")
    }
    lists = {
        name: tuple(one.ljust(200, "p")[:200] for one in found) for name, found in lists.items()
    }
    return Entry(user="u" * 1_000, response="r" * 2_000, state="answered", **lists)


def test_the_newest_entry_is_shortened_and_never_left_out():
    entry = largest()
    assert len(entry_text(entry, PROFILE)) > 13_000
    text = abridged_text([entry], PROFILE)

    # Without its whole answer it is still too long, and so the actions lose lines.
    assert 8_000 < len(text) <= 10_000
    assert "u" * 1_000 in text
    assert "agent_response" not in text
    assert text.count("... ") == 5


def test_the_answer_is_shortened_first():
    entry = replace(largest(), viewed=(), commands=())
    shown = changed(abridged_total_chars_limit=8_000)
    text = abridged_text([entry], shown)

    assert len(text) == 8_000
    assert text.count("p" * 190) == 30
    assert "r...r" in text


def test_as_many_lines_of_actions_are_kept_as_fit():
    entry = replace(largest(), response="", state="interrupted")
    lists = [one.name for one in fields(Profile) if one.name.startswith("abridged_num_")]
    whole = {n: entry_text(entry, changed(**dict.fromkeys(lists, n))) for n in range(1, 11)}
    for lines, text in whole.items():
        exact = abridged_text([entry], changed(abridged_total_chars_limit=len(text)))
        assert exact == text
        if lines > 1:
            less = abridged_text([entry], changed(abridged_total_chars_limit=len(text) - 1))
            assert less == whole[lines - 1]


def test_the_users_words_are_shortened_last():
    text = abridged_text([largest()], changed(abridged_total_chars_limit=200))

    assert len(text) == 200
    assert text.startswith("<user>\nuuu")
    assert text.endswith("uuu\n</user>")


def test_whatever_the_total_it_is_kept():
    draw = random.Random(seed())
    for _ in range(150):
        entry = Entry(
            user="u" * draw.randrange(400),
            response="r" * draw.choice([0, 3, 500]),
            state=draw.choice(["answered", "interrupted", "continues"]),
            viewed=tuple("v" * draw.randrange(1, 90) for _ in range(draw.randrange(15))),
            commands=tuple("c" * draw.randrange(1, 90) for _ in range(draw.randrange(15))),
        )
        total = draw.randrange(60, 900)
        text = abridged_text([entry], changed(abridged_total_chars_limit=total))
        assert 0 < len(text) <= total
        assert text.startswith("<user>\n")


def test_by_importance_the_best_are_kept_in_the_order_of_time():
    entries = [
        replace(entry, score=score)
        for entry, score in zip(exchanges(100, 100, 100, 100, 100), (2, 0, 2, 1, 0), strict=True)
    ]
    profile = changed(abridged_total_chars_limit=303, importance=True)
    assert [one.position for one in kept_entries(entries, profile)] == [0, 2, 4]
    # Of equal ones the newest.
    profile = changed(abridged_total_chars_limit=202, importance=True)
    assert [one.position for one in kept_entries(entries, profile)] == [2, 4]


def test_importance_leaves_no_room_unused_that_a_smaller_entry_could_have():
    entries = exchanges(60, 200, 100)
    entries[1] = replace(entries[1], score=5.0)
    profile = changed(abridged_total_chars_limit=170, importance=True)
    assert [one.position for one in kept_entries(entries, profile)] == [0, 2]


@pytest.mark.parametrize("importance", [False, True])
def test_an_entry_that_cannot_fit_is_not_made_into_text(importance, monkeypatch):
    made = []

    def noted(entry, profile):
        made.append(entry.position)
        return entry_text(entry, profile)

    monkeypatch.setattr("compaction.engine.abridged.entry_text", noted)
    profile = changed(abridged_total_chars_limit=350, importance=importance)
    kept = kept_entries(exchanges(*[100] * 50), profile)
    assert {one.position for one in kept} == set(made)
    assert len(made) < 5


# --- what is stored -------------------------------------------------------------------------------


def test_an_entry_comes_back_from_json():
    entry = replace(largest(), score=2.5, why=("a decision",), position=7 * STEP)
    assert entry_from_json(json.loads(json.dumps(entry.as_json()))) == entry
    assert set(Entry(user="hi").as_json()) == {"user", "state", "position"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "text",
        [],
        {},
        {"state": "answered"},
        {"state": "asleep", "position": 1},
        {"state": [], "position": 1},
        {"state": "answered", "position": "1"},
        {"state": "answered", "position": True},
        {"state": "answered", "position": 1.5},
        {"state": "answered", "position": 1, "user": None},
        {"state": "answered", "position": 1, "viewed": "a"},
        {"state": "answered", "position": 1, "viewed": [1]},
        {"state": "answered", "position": 1, "why": {}},
        {"state": "answered", "position": 1, "names": "a"},
        {"state": "answered", "position": 1, "names": [1]},
        {"state": "answered", "position": 1, "score": float("nan")},
        {"state": "answered", "position": 1, "score": "2"},
        {"state": "answered", "position": 10**400},
    ],
)
def test_what_is_no_entry_is_none(value: object):
    assert entry_from_json(value) is None


def test_what_is_stored_of_an_exchange_has_bounds():
    items = talk(
        ("user", "q" * 100_000),
        ("assistant", "", *(call(f"c{n}", "bash", command=f"{n} " * 5_000) for n in range(1_500))),
        ("assistant", "a" * 100_000),
    )
    (entry,) = entries_of(items, profile=PROFILE)
    assert (len(entry.user), len(entry.response), len(entry.commands)) == (2_000, 2_000, 1_000)
    assert max(map(len, entry.commands)) == 1_000


def test_what_no_database_stores_is_left_out():
    items = talk(("user", "a\x00b\ud800c"), ("assistant", "d\x00"))
    (entry,) = entries_of(items, profile=PROFILE)
    assert (entry.user, entry.response) == ("abc", "d")

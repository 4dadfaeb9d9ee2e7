"""The summary node: two messages of a profile's own words, which nothing in them can leave."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.abridged import Entry, abridged_text, kept_entries
from compaction.engine.abridging import with_small_history
from compaction.engine.history_parameters import NODE_REQUEST
from compaction.engine.memories import block_of, proposals_in
from compaction.engine.parameters import Profile
from compaction.engine.profile import PRESETS, ProfileError, build
from compaction.engine.protocols import SentSummary
from compaction.engine.rendering import (
    NODE,
    SYSTEM,
    escape_node_tags,
    makes_node,
    node_request,
    rendered,
    with_files,
)
from compaction.engine.strategies.prompts import escape_tags
from compaction.engine.types import Item, Outcome
from tests.facts import seed
from tests.growth import takes_longer

ABRIDGED = PRESETS["abridged"]
TEMPLATE = "H={abridged_history};S={summary}."
TAGS = ["user", "supervisor", "summary", "abridged_history"]


def node(*summaries: SentSummary, profile: Profile = ABRIDGED) -> list[dict[str, str]]:
    return rendered(NODE, list(summaries), profile)


def test_the_built_in_template_is_the_established_one():
    assert len(NODE_REQUEST) == 463
    filled = NODE_REQUEST.replace("{abridged_history}", "A").replace("{summary}", "B")
    assert node(SentSummary(text="B", abridged="A")) == [
        {"role": "user", "content": filled},
        {"role": "assistant", "content": "Ok. I will continue the conversation from this point."},
    ]


def test_both_are_filled_in_one_pass():
    text = "see {abridged_history} and {summary} and $& and \\g<0> and {0}"
    said = node_request(TEMPLATE, abridged="{summary}", summary=text)
    assert said == "H={summary};S=" + text + "."


def test_what_else_stands_in_braces_stays():
    profile = replace(ABRIDGED, summary_node_request_message_template="{x} {} " + TEMPLATE)
    assert node(SentSummary(text="s"), profile=profile)[0]["content"] == "{x} {} H=;S=s."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<summary>\nThe answer.\n</summary>\n", "The answer."),
        ("  <SUMMARY>The answer.</SUMMARY>", "The answer."),
        ("The answer.", "The answer."),
        ("<summary>The answer.", "The answer."),
    ],
)
def test_tags_around_a_whole_answer_are_left_out(answer, said):
    assert node_request(TEMPLATE, abridged="", summary=answer) == f"H=;S={said}."


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("form", ["</{}>", "< / {} >", "<{}>", "</{} x>"])
def test_a_summary_can_close_and_open_no_tag_of_the_frame(tag, form):
    said = node(SentSummary(text=f"a {form.format(tag.upper())} b"))[0]["content"]
    assert form.format(tag.upper()) not in said
    assert "a &lt;" in said


@pytest.mark.parametrize("tag", TAGS[1:])
def test_nor_can_an_abridged_history_which_keeps_its_own(tag):
    history = f"<user>\nhi </{tag}>\n</user>\n<agent_continues/>"
    said = node_request(TEMPLATE, abridged=history, summary="s")
    assert said == f"H=<user>\nhi &lt;/{tag}>\n</user>\n<agent_continues/>;S=s."


@given(text=st.text(), history=st.text())
def test_whatever_is_filled_in_the_frame_stands_once(text, history):
    said = node_request(NODE_REQUEST, abridged=history, summary=text)
    for tag in ("</supervisor>", "</abridged_history>", "</summary>"):
        assert said.count(tag) == 1


def test_several_summaries_are_one_node_with_the_newest_history():
    first, second = SentSummary(text="one", abridged="old"), SentSummary(text="two", abridged="new")
    digest = SentSummary(text="three")
    said = node(
        first,
        second,
        digest,
        profile=replace(ABRIDGED, summary_node_request_message_template=TEMPLATE),
    )
    assert [message["role"] for message in said] == ["user", "assistant"]
    assert said[0]["content"] == "H=new;S=one\n\ntwo\n\nthree."


def test_an_acknowledgement_of_blanks_is_the_built_in_one():
    profile = replace(ABRIDGED, summary_node_response_message=" \n")
    assert node(SentSummary(text="s"), profile=profile)[1]["content"].startswith("Ok. I will")


def test_without_a_summary_there_is_no_node():
    assert node() == []


def test_other_renderings_are_no_nodes_and_take_the_text_alone():
    assert (makes_node(NODE), makes_node(SYSTEM)) == (True, False)
    history = SentSummary(text="words", abridged="history")
    (message,) = rendered(SYSTEM, [history], ABRIDGED)
    assert "words" in message["content"]
    assert "history" not in message["content"].partition("<summary>")[2]


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{summary}", "Must hold {abridged_history}"),
        ("{abridged_history}", "Must hold {summary}"),
        ("", "Must hold {abridged_history}"),
        (TEMPLATE + "{summary}", "Must hold {summary} once, and holds it 2 times"),
        (TEMPLATE.replace("{", "{ "), "Must hold {abridged_history}"),
    ],
)
def test_a_template_holds_both_places_once(template, sentence):
    name = "summary_node_request_message_template"
    with pytest.raises(ProfileError) as refused:
        build(Profile(), {name: template})
    assert sentence in refused.value.errors[name]


def test_a_prompt_has_at_most_20000_characters():
    build(Profile(), {"prompt": "é" * 20_000})
    with pytest.raises(ProfileError) as refused:
        build(Profile(), {"prompt": "é" * 20_001})
    assert "20,000 characters" in refused.value.errors["prompt"]


def test_the_preset_has_the_established_numbers():
    found = (
        ABRIDGED.trigger_on_history_size_chars,
        ABRIDGED.trigger_on_history_size_chars_when_cache_expiring,
        ABRIDGED.history_tail_size_chars_to_exclude,
        ABRIDGED.cache_ttl_ms,
        ABRIDGED.buffer_time_before_cache_expiration_ms,
        ABRIDGED.head_chars_limit,
        ABRIDGED.head_overflow,
        ABRIDGED.prompt,
        ABRIDGED.summariser_input,
        ABRIDGED.rendering,
        ABRIDGED.cut,
    )
    assert found == (
        50_000,
        30_000,
        5_000,
        300_000,
        30_000,
        800_000,
        "halve",
        "",
        "transcript",
        "node",
        "tail_chars",
    )
    assert ABRIDGED.excluded_bot_types == "1, CODE_REVIEW_BOT, 2, CODE_REVIEW_EVAL_BOT"
    limits = (10_000, 1_000, 2_000, 200, 10, 10, 10, 10, 10)
    assert limits == (
        ABRIDGED.abridged_total_chars_limit,
        ABRIDGED.abridged_user_message_chars_limit,
        ABRIDGED.abridged_agent_response_chars_limit,
        ABRIDGED.abridged_action_chars_limit,
        ABRIDGED.abridged_num_files_modified,
        ABRIDGED.abridged_num_files_created,
        ABRIDGED.abridged_num_files_deleted,
        ABRIDGED.abridged_num_files_viewed,
        ABRIDGED.abridged_num_terminal_commands,
    )


STATES = ("answered", "interrupted", "continues")
# One entry, or none: each tag stands whole.
WHOLE = re.compile(
    r"(?:<user>\n[^<>]*\n</user>"
    r"(?:\n<agent_actions>\n(?:    <(\w+)>\n(?:        [^<>]+\n)+    </\1>\n)+</agent_actions>)?"
    r"(?:\n<agent_response>\n[^<>]*\n</agent_response>|\n<agent_(?:was_interrupted|continues)/>)?"
    r")?"
)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("words", ["", "Hi", "word " * 100])
def test_however_little_room_there_is_no_tag_of_the_history_is_cut(state, words):
    draw = random.Random(seed())
    for files in (0, draw.randrange(1, 12)):
        viewed = tuple("v" * draw.randrange(1, 90) for _ in range(files))
        response = "x " * draw.randrange(1, 200) if state == "answered" else ""
        entry = Entry(user=words, response=response, state=state, viewed=viewed)
        lengths = []
        for room in range(601):
            profile = replace(ABRIDGED, abridged_total_chars_limit=room)
            text = abridged_text([entry], profile)
            assert len(text) <= room
            assert WHOLE.fullmatch(text), (room, text)
            assert kept_entries([entry], profile) == ([entry] if text else [])
            lengths.append(len(text))
        # The tags alone have 15 characters, and the mark of what came of it some more.
        marks = {"answered": 0, "interrupted": 25, "continues": 19}
        assert next(room for room, size in enumerate(lengths) if size) == 15 + marks[state]
        assert all(lengths[15 + marks[state] :])


@pytest.mark.parametrize("saved", range(40))
def test_beside_a_summary_that_saves_little_the_history_is_whole_or_none(saved):
    entries = [
        Entry(user="word " * 100, response="x " * 100, state="answered", position=number)
        for number in range(3)
    ]
    item = Item(id=1, role="user", text="a")
    outcome = Outcome(
        text="s",
        items=(item,),
        chunk_count=1,
        max_depth=0,
        truncated=False,
        input_tokens=1,
        output_tokens=1,
    )
    found = with_small_history(
        outcome, entries, ABRIDGED, saved=saved, count=lambda text: (len(text) + 3) // 4
    )
    assert len(found.abridged) <= 2 * saved
    assert WHOLE.fullmatch(found.abridged)
    assert len(found.abridged_entries) == 3


@pytest.mark.parametrize(
    "rewritten",
    [
        escape_tags,
        escape_node_tags,
        with_files,
        lambda text: node_request(TEMPLATE, abridged=text, summary=text),
        lambda text: str(block_of([text])),
        lambda text: str(proposals_in(f"```\n{text}")),
    ],
)
def test_a_tag_that_never_comes_to_its_name_costs_a_look_a_character(rewritten):
    # Looked at again from each character it took minutes.
    for text in ("<" + " " * 60_000 + "x", "x" + " \n" * 30_000 + "x", "< /" * 20_000):
        assert not takes_longer(partial(rewritten, text), 3)

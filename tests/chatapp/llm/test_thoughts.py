"""Thoughts and text are told apart, wherever a stream is cut."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.llm.thoughts import ThoughtSplitter, content_of, split, thoughts_of
from tests.growth import takes_longer


@pytest.mark.parametrize(
    ("text", "said", "thought"),
    [
        ("<think>short then</think>\nHello", "Hello", "short then"),
        ("\n <think>\na\n</think>\n\nHello\n", "Hello\n", "a"),
        ("<Thinking>a</THINKING>Hello", "Hello", "a"),
        ("<reasoning>a</reasoning> Hello", "Hello", "a"),
        ("<thought>a</thought>Hello", "Hello", "a"),
        ("◁think▷a◁/think▷Hello", "Hello", "a"),
        ("<mm:think>a</mm:think>Hello", "Hello", "a"),
        ("<internal_reasoning>a</internal_reasoning>Hello", "Hello", "a"),
        ("<|thinking|>a<|/thinking|>Hello", "Hello", "a"),
        ("<|channel>thought\na<channel|>Hello", "Hello", "a"),
        ("<unused94>a<unused95>Hello", "Hello", "a"),
        ("[THINK]a[/THINK]Hello", "Hello", "a"),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant"
            "<|channel|>final<|message|>Hello",
            "Hello",
            "a",
        ),
        ("<think>a</think>\n<think>b</think>\nHello", "Hello", "ab"),
        ('<think type="deep">a</think>Hello', "Hello", "a"),
        ("\n<Thinking budget='low' lang=en >\na</thinking>Hello", "Hello", "a"),
        ('<thought\n  id="1"\n  data-x="a b">a</thought> Hello', "Hello", "a"),
        ("<reasoning >a</reasoning>Hello", "Hello", "a"),
        ('<think type="deep">it is never closed', "", "it is never closed"),
        ('<think a="1">a</think><think a="2">b</think>Hello', "Hello", "ab"),
        ("<think></think>\n\nHello", "Hello", ""),
        ("<think>it is never closed. Hello", "", "it is never closed. Hello"),
        ("<think>", "", ""),
        ("Okay, they want a greeting.\n</think>\n\nHello", "Hello", "Okay, they want a greeting."),
        ("They want it short.</think>Hello", "Hello", "They want it short."),
        ("They want it short. </think> Hello", "Hello", "They want it short."),
        ("</think>\n\nHello", "Hello", ""),
        (
            "A `</think>` is code.\nI see.\n</think>\nHello",
            "Hello",
            "A `</think>` is code.\nI see.",
        ),
        ("I am done.</think>", "", "I am done."),
    ],
)
def test_thoughts_at_the_start_are_split_off(text, said, thought):
    assert split(text) == (said, thought)


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        "",
        " \n",
        "A <think> in the middle stays.",
        "Write <think> first and </think> last.",
        "Use `<think>` and `</think>`.",
        "The tag </think> closes it.",
        'It ends with "</think>", always.',
        "```\n</think>\n```\nThat is all.",
        "```xml\nx\n</think>\ny\n```",
        "<thinker>no tag</thinker>",
        "<thought experiments> are allowed</thought experiments>",
        "<think twice",
        '<think type="deep',
        "<think and then `</think>` it",
        f'<think x="{"a" * 400}">too long</think>'.replace("</think>", ""),
        "<b>bold</b>",
        "`<think>a</think>` at the start is code",
        "<thi",
        " " * 2000 + "<think>too far in</think>",
    ],
)
def test_what_only_looks_like_thoughts_stays_text(text):
    assert split(text) == (text, "")


PIECES = (
    "<think>",
    "</think>",
    "<thinking>",
    "</thinking>",
    "[THINK]",
    "[/think]",
    "◁think▷",
    "◁/think▷",
    "`",
    "```",
    "\n",
    "\n\n",
    " ",
    ".",
    '"',
    "Hello",
    "<",
    "</",
    "İ",
    '<think type="x">',
    "<think ",
    "<thought experiments>",
    "a='b'",
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(TEXTS, st.lists(st.integers(min_value=0, max_value=200), max_size=40))
def test_the_result_does_not_depend_on_where_a_stream_is_cut(text, cuts):
    shown: list[str] = []
    splitter = ThoughtSplitter(show=shown.append, take_back=shown.clear)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in itertools.pairwise(places):
        splitter.feed(text[start:end])
    splitter.finish()
    assert (splitter.text, splitter.thoughts) == split(text)
    assert "".join(shown) == splitter.text


def test_a_possible_tag_is_held_back_until_it_is_known():
    shown: list[str] = []
    splitter = ThoughtSplitter(show=shown.append)
    for piece in ("<", "thi", "nk", ">secret</th", "ink>", "\n", "Hel", "lo"):
        splitter.feed(piece)
    assert shown == ["Hel", "lo"]


def test_thoughts_that_were_shown_are_taken_back():
    told: list[str] = []
    splitter = ThoughtSplitter(told.append, lambda text: None, lambda: told.append("TAKEN BACK"))
    for piece in ("Okay.", "\n</thi", "nk>\n", "Hello"):
        splitter.feed(piece)
    splitter.finish()
    assert told == ["Okay.", "\n", "TAKEN BACK", "Hello"]


@pytest.mark.parametrize(
    "piece", ['"</think>', "`", "</think", "<think", "<think a", " ", "\n", "[", "<|"]
)
def test_no_text_takes_long(piece):
    for text in (piece * 100_000, "<think>" + piece * 100_000):
        assert not takes_longer(partial(split, text), 1.5)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"reasoning_content": "a"}, ("a", "reasoning_content")),
        ({"reasoning": "a"}, ("a", "reasoning")),
        ({"thinking": "a"}, ("a", "thinking")),
        ({"reasoning_content": "a", "reasoning": "a"}, ("a", "reasoning_content")),
        ({"reasoning_content": "", "reasoning": "a"}, ("a", "reasoning")),
        ({"reasoning": {"content": "a"}}, ("a", "")),
        ({"thinking": {"thinking": "a", "signature": "x"}}, ("a", "")),
        (
            {"reasoning_details": [{"type": "reasoning.text", "text": "a"}, {"data": "x"}]},
            ("a", ""),
        ),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "a"}]}, ("a", "")),
        ({"reasoning": 7, "thinking": None}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_thoughts_are_found_in_any_field(message, found):
    assert thoughts_of(message) == found


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a", ("a", "")),
        (None, ("", "")),
        ([{"type": "text", "text": "a"}], ("a", "")),
        (
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]},
                {"type": "text", "text": "a"},
            ],
            ("a", "t"),
        ),
        ([{"type": "reasoning", "text": "t"}, {"type": "text", "text": "a"}], ("a", "t")),
        ([{"text": "t", "thought": True}, {"text": "a"}], ("a", "t")),
        ([7, "a"], ("a", "")),
    ],
)
def test_thoughts_among_the_parts_of_a_content_are_no_text(content, found):
    assert content_of(content) == found

"""What a model puts around a summary is taken off, and nothing of the summary with it."""

from __future__ import annotations

import json
import random

import pytest

from compaction.engine.strategies.acceptance import implausible
from compaction.engine.types import SummaryRequest
from compaction.engine.unwrapping import unwrapped, without_tags
from tests.facts import draw_facts, seed

WRAPPINGS = {
    "tags": lambda text: f"<summary>\n{text}\n</summary>",
    "tags in capitals": lambda text: f"<Summary>{text}</SUMMARY>",
    "other tags": lambda text: f"<answer>\n{text}\n</answer>",
    "an opening tag alone": lambda text: f"<summary>\n{text}",
    "a fence": lambda text: f"```markdown\n{text}\n```",
    "a bare fence": lambda text: f"```\n{text}\n```",
    "notes before": lambda text: f"<analysis>\nI go through it.\n</analysis>\n\n{text}",
    "an announcement": lambda text: f"Sure! Here is the summary of the conversation:\n\n{text}",
    "a plain announcement": lambda text: f"Below is a concise summary:\n{text}",
    "an announcement in Chinese": lambda text: f"好的，以下是对话的总结：\n{text}",
    "an object": lambda text: json.dumps({"summary": text}),
    "nothing": lambda text: text,
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_the_text_comes_out_as_it_was(name):
    chance = random.Random(f"{seed()} {name}")
    for _ in range(5):
        facts = draw_facts(chance, 3)
        text = "## Facts\n" + "\n".join(f"- {fact.sentence}" for fact in facts)
        other = WRAPPINGS[chance.choice(("tags", "notes before", "an announcement", "nothing"))]
        assert unwrapped(WRAPPINGS[name](text)) == text
        assert unwrapped(other(WRAPPINGS[name](text))) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<summary></summary>",
        "<analysis>only notes</analysis>",
        "<analysis>never closed",
        "```\ncode\n```\nand\n```\nmore\n```",
        '{"summary": 5}',
        '{"requests": "a", "facts": "b"}',
        "{ not json",
        "Here is the deal: the deposit is due.",
        "The user said: <summary> is a tag.",
        "<b>bold</b> words",
    ],
)
def test_what_is_no_wrapping_stays(text):
    assert unwrapped(text) == text


def test_one_tag_of_a_pair_is_taken_off_alone():
    assert without_tags("<summary>a") == without_tags("a</summary>") == "a"


FORMS = [
    "## Goal\n- [what the user wants]\n\n## Progress\n- [done items]\n\n## Next\n- [ordered list]",
    "## Requests\n[list the requests here]\n\n## Facts\n[list the facts here]",
    "1. <the first request>\n2. <the second request>",
    "## Goal\n- {goal of the user}\n- {constraints}\n- Keep it short.",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_form_that_was_not_filled_in_is_no_summary(text):
    assert "form" in implausible(text, SummaryRequest(kind="chunk"))


@pytest.mark.parametrize(
    "text",
    [
        "## Goal\n- Rent the boat [#1]\n- [see message 4]",
        "- The list is [1, 2, 3].\n- It was sent to <ilse@example.org>.",
        "- [x] booked the boat\n- [ ] paid the deposit",
    ],
)
def test_brackets_in_a_text_are_no_form(text):
    assert implausible(text, SummaryRequest(kind="chunk")) == ""

"""What small models write instead of a summary, and what must still count."""

from __future__ import annotations

import pytest

from compaction.engine.strategies.acceptance import implausible
from compaction.engine.types import Item, SummaryRequest, ToolCall

REQUEST = SummaryRequest(
    kind="chunk",
    items=(
        Item(id=1, role="user", text="My order PX-4471 has not arrived. It goes to src/app.py."),
        Item(
            id=2,
            role="assistant",
            text="The parcel lies in Rotterdam.",
            tool_calls=(ToolCall(id="c", name="read_file", arguments='{"path": "etc/hosts_2"}'),),
        ),
    ),
    previous="Earlier the account DE-8812 was named.",
)


@pytest.mark.parametrize(
    "text",
    [
        "[1] user: My order has not arrived.\n[2] assistant: The parcel lies in Rotterdam.",
        "User: where is it?\nAssistant: In Rotterdam.\nUser: thanks",
        "The order PX-4471.\n</conversation id=1a2b3c4d>",
        "用户：订单在哪里？\n助手：在鹿特丹。",
    ],
)
def test_a_text_that_goes_on_with_the_dialogue_is_no_summary(text):
    assert "went on with the dialogue" in implausible(text, REQUEST)


@pytest.mark.parametrize("words", ["never mind ", "没关系", "the same "])
def test_a_few_words_over_and_over_are_no_summary_even_without_a_full_stop(words):
    assert "repeated itself" in implausible(words * 7_000, REQUEST)
    assert implausible(words * 20, REQUEST) == ""


def test_a_long_list_of_like_lines_may_be_a_summary():
    lines = "".join(f"- order PX-{number} went to Hamburg\n" for number in range(4471, 5471))
    items = (Item(id=1, role="user", text=lines),)
    request = SummaryRequest(kind="chunk", items=items)
    assert implausible(lines, request) == ""


def test_a_text_that_goes_round_in_circles_is_no_summary():
    text = "The order is on its way to Hamburg. " * 6
    assert "repeated itself" in implausible(text, REQUEST)
    assert "repeated itself" in implausible("订单正在运往汉堡的路上，预计星期五到达。" * 6, REQUEST)


def test_things_that_nobody_wrote_are_told_by_name():
    text = "Orders ZZ-1234, QQ-9876 and the file lib/util.py were discussed; PX-4471 too."
    assert "ZZ-1234 for example (3 in all)" in implausible(text, REQUEST)


@pytest.mark.parametrize(
    "text",
    [
        "The order PX-4471 lies in Rotterdam.",
        # One tagged line among others, one sentence twice, one new name among known ones.
        "# Requests\nUser: wants the order.\n# Results\nIt lies in Rotterdam.\nNothing else.",
        "It goes to Hamburg by Friday. The price was fixed before. It lies in Rotterdam today. "
        "The account was named earlier. Nobody asked for more than that. It goes to Hamburg by "
        "Friday.",
        "PX-4471, src/app.py, read_file, etc/hosts_2 and DE-8812 were named; 2026-11-28 is new.",
        "",
        "Two unknown ones, AB-1234 and CD-5678, are too few to tell.",
    ],
)
def test_what_may_be_a_summary_counts(text):
    assert implausible(text, REQUEST) == ""


def test_a_merge_is_held_against_the_two_texts_it_joins():
    request = SummaryRequest(kind="merge", texts=("Order AA-1111, file one_two.", "Order BB-2222."))
    assert implausible("AA-1111 and BB-2222 touch one_two.", request) == ""
    assert "CC-3333" in implausible("CC-3333, DD-4444 and EE-5555.", request)

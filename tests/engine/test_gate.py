"""Which summaries are rejected, why, and what they must add."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.fidelity import gate
from compaction.engine.fidelity.gate import GateLimits, rejections, says_nothing, speaks_to_user
from compaction.engine.fidelity.measure import measure
from compaction.engine.types import Item

LIMITS = GateLimits()
GOOD = "## Facts\n- the code of the door is PX-4471"


def said(*texts, role="user"):
    return [
        Item(id=number, role=role, text=text, position=number) for number, text in enumerate(texts)
    ]


def codes(text, items, limits=LIMITS, **options):
    return [
        one.code for one in rejections(text, measure(text, items=items, **options), limits=limits)
    ]


def rejection(code, text, items, **options):
    found = rejections(text, measure(text, items=items, **options), limits=LIMITS)
    return next(one for one in found if one.code == code)


def test_a_good_summary_passes():
    assert codes(GOOD, said("The code of the door is PX-4471")) == []


def test_another_language_is_rejected():
    text = "The customer asked for a refund, and it is not clear who has to pay for the transport."
    items = said("客户要求退款，但是还没有说清楚运费由谁来付，我们明天再和他确认。")

    assert gate.OTHER_LANGUAGE in codes(text, items)


def test_a_number_that_nobody_wrote_is_rejected_and_named():
    found = rejection(gate.UNSUPPORTED, "They made 3.4 billion", said("We made 340 million there"))

    assert found.missing == ("3.4 billion",)
    assert "3.4 billion" in found.sentence


@pytest.mark.parametrize(
    "invented", ["PX-4417", "src/app/views.py", "bob@example.com", "maxRetries"]
)
def test_an_identifier_that_nobody_wrote_is_rejected(invented):
    items = said("The code of the door is PX-4471")

    assert codes(f"{GOOD}, says {invented} now", items) == [gate.UNSUPPORTED]


def test_a_name_that_nobody_wrote_is_not_rejected():
    items = said("The code of the door is PX-4471")

    assert codes(f"{GOOD}, says Taihua now", items) == []


def test_losing_most_of_the_users_identifiers_is_rejected():
    items = said("Use PX-4471 and QR-5582", "also ST-6693 and UV-7704")

    found = rejection(gate.IDENTIFIERS_LOST, "- PX-4471 is used", items)

    assert set(found.missing) == {"QR-5582", "ST-6693", "UV-7704"}


def test_losing_one_of_two_identifiers_is_not_rejected():
    assert gate.IDENTIFIERS_LOST not in codes("- a code", said("Use PX-4471 and QR-5582"))


def test_exactly_the_share_that_is_asked_for_is_enough():
    quality = replace(measure("", items=[]), user_identifiers=(3, 10))

    assert rejections(GOOD, quality, limits=LIMITS) == ()


@pytest.mark.parametrize(("score", "expected"), [(59.0, [gate.BELOW_YARDSTICK]), (60.0, [])])
def test_a_score_below_six_tenths_of_the_yardstick_is_rejected(score, expected):
    quality = replace(measure("", items=[]), score=score, yardstick=100.0)

    assert [one.code for one in rejections(GOOD, quality, limits=LIMITS)] == expected


NAMES = ["Ada", "Berta", "Carla", "Dora", "Emma", "Frieda", "Greta", "Hanna"]
A_LINE_OF_NOTHING = "## Goal\n- The parts are merged."


def test_a_text_too_short_for_a_yardstick_must_know_one_of_many_things():
    """A yardstick of ten tokens knows nothing either: the score of both is 0."""
    items = said(*(f"We have to write to {name} about it" for name in NAMES))

    found = rejection(gate.BELOW_YARDSTICK, A_LINE_OF_NOTHING, items)

    assert "none of the 8 names" in found.sentence
    assert set(found.missing) == set(NAMES)
    assert codes("## Goal\n- Letters to Ada and others.", items) == []


def test_of_seven_things_a_short_text_may_name_none():
    items = said(*(f"We have to write to {name} about it" for name in NAMES[:7]))

    assert codes(A_LINE_OF_NOTHING, items) == []


def test_without_a_yardstick_nothing_is_compared():
    quality = replace(measure("", items=[]), score=0.0, yardstick=0.0)

    assert rejections(GOOD, quality, limits=LIMITS) == ()


def test_dropping_what_the_summary_before_knew_is_rejected():
    previous = "- PX-4471\n- QR-5582\n- ST-6693"

    found = rejection(gate.CARRIED_LOST, "- PX-4471", said("go on"), previous=previous)

    assert found.missing == ("QR-5582", "ST-6693")


@pytest.mark.parametrize(("lost", "expected"), [(3, []), (4, [gate.CARRIED_LOST])])
def test_three_tenths_of_what_was_carried_may_go(lost, expected):
    quality = replace(measure("", items=[]), carried=(lost, 10))

    assert [one.code for one in rejections(GOOD, quality, limits=LIMITS)] == expected


def test_two_carried_facts_are_too_few_to_judge():
    previous = "- PX-4471\n- QR-5582"

    assert codes("- fine", said("go on"), previous=previous) == []


@pytest.mark.parametrize(
    "text",
    [
        "## Requests\nNone\n\n## Facts\n- None.",
        "Requests: None\nRules: N/A\nOpen questions: none",
        "**Goal:** None\n**Decisions:** None mentioned",
        "## 请求\n无\n## 事实\n- 暂无",
        "## Goal\n## Facts",
        "",
        "  \n ",
    ],
)
def test_only_none_is_nothing(text):
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "Requests: None\nFacts: the door is open",
        "## Rules\n- None of the doors may be opened",
        "The door is open.",
        "## 事实\n- 无线网络坏了",
        "Nothing works since Friday",
    ],
)
def test_something_beside_none_is_something(text):
    assert not says_nothing(text)


def test_only_none_asks_for_what_was_lost():
    found = rejection(gate.ONLY_NONE, "Requests: None", said("The code of the door is PX-4471"))

    assert found.missing == ("PX-4471",)


@pytest.mark.parametrize(
    "text",
    [
        "Sure! Here is a summary of the conversation:\n- the door",
        "I'm sorry, but I can't help with that.",
        "I cannot provide a summary of this conversation.",
        "I will now look at the files and fix the tests.",
        "Let me start by reading the configuration.",
        "As an AI language model, I have no access to it.",
        "You're welcome! Anything else?",
        "Of course! I'll book the table.",
        "Es tut mir leid, das kann ich nicht.",
        "Ich werde jetzt die Dateien lesen.",
        "Je suis désolé, je ne peux pas le faire.",
        "Lo siento, no puedo ayudar con eso.",
        "К сожалению, я не могу помочь.",
        "抱歉，我无法总结这段对话。",
        "好的，以下是对话的总结：",
        "申し訳ありませんが、要約できません。",
        "죄송합니다, 요약할 수 없습니다.",
    ],
)
def test_an_answer_an_apology_and_a_plan_speak_to_the_user(text):
    assert speaks_to_user(text)


@pytest.mark.parametrize(
    "text",
    [
        "The assistant apologised for the delay and promised a refund.",
        "The user said: I'm sorry, but I can't come on Friday.",
        "- I'm sorry, but I can't come on Friday",
        "## Requests\nSure! Here is what was asked for",
        "I live in Seattle and work as a designer.",
        "Sorry Productions is the name of the firm.",
        "Unfortunately the order was lost on the way.",
        "Let me know is what the button says.",
        "Great Expectations was recommended.",
        "User wants to cancel; assistant refused: cannot cancel.",
        "助手对延误表示抱歉，并答应退款。",
        "好的一面是价格低。",
        "Natural gas prices rose.",
        "Certo is the name of the company.",
    ],
)
def test_a_report_speaks_to_nobody(text):
    assert not speaks_to_user(text)


def test_at_most_thirty_things_are_asked_for():
    items = said(" ".join(f"AB-{number}" for number in range(1000, 1100)))

    assert len(rejection(gate.ONLY_NONE, "None", items).missing) == 30


def test_each_rejection_says_what_happened_and_what_it_means():
    everything = replace(
        measure("", items=[]),
        language_matches=False,
        language="en",
        unsupported=("PX-4417",),
        user_identifiers=(0, 9),
        score=1.0,
        yardstick=9.0,
        carried=(9, 9),
    )

    found = [
        *rejections("Sure! Here is a summary", everything, limits=LIMITS),
        *rejections("None", everything, limits=LIMITS),
    ]

    assert {one.code for one in found} == set(gate.CODES) - {
        gate.TOO_LONG
    }  # which only the strategy can tell
    assert all(": " in one.sentence and one.sentence.endswith(".") for one in found)


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_can_be_judged(text):
    rejections(text, measure(text, items=said("PX-4471")), limits=LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        "There is nothing to summarise.",
        "There is nothing to summarize. The conversation is empty.",
        "No information was provided.",
        "No conversation to summarize",
        "The conversation contains no information worth noting.",
        "## Goal\nThere is nothing to report.\n## State\nNone",
        "Es gibt nichts zusammenzufassen.",
        "Il n'y a rien à résumer.",
        "No hay nada que resumir.",
        "没有可总结的内容。",
        "要約する内容はありません。",
    ],
)
def test_sentences_for_nothing_say_nothing(text):
    assert says_nothing(text)
    assert gate.ONLY_NONE in codes(text, said("The code of the door is PX-4471"))


@pytest.mark.parametrize(
    "text",
    [
        "There is nothing in box 12-AB.",
        "There is nothing wrong with the pump.",
        "Es gibt keine Fehler mehr.",
        "No hay ninguno en el almacén.",
        "There is nothing left to do; Ana approved build 7f3a91.",
        "There is no information about flight BA213 yet.",
        "There are no failing tests. The release goes out on Friday.",
        "The transcript is missing; the user asked support for it.",
    ],
)
def test_a_report_of_nothing_in_particular_is_a_report(text):
    assert not says_nothing(text)

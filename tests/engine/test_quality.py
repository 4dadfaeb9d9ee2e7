"""What a summary still knows: kept, lost, invented, carried on."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.engine.fidelity.covered import MOST_NAMED
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.fidelity.measure import (
    MOST_FACTS,
    MOST_LOST,
    QUALITY_VERSION,
    Findings,
    measure,
)
from compaction.engine.provenance import Unit, UnitKind
from compaction.engine.strategies.measuring import covered_by, material_of
from compaction.engine.types import Item, SummaryJob, ToolCall
from tests.engine.extractive_support import QuarterCounter
from tests.growth import takes_longer

ANY_TEXT = st.text(st.characters(codec=None), max_size=200)


def said(*texts, role="user", start=0):
    return [
        Item(id=f"m{number}", role=role, text=text, position=number, tokens=10)
        for number, text in enumerate(texts, start)
    ]


def score(text, items, **options):
    return measure(text, items=items, **options).score


def test_a_word_with_a_hyphen_is_known_where_it_is_repeated():
    items = said("The state-of-the-art kiln needs a well-known fire_proof/heat=proof lining.")

    assert measure(items[0].text, items=items).user_words == 1


def test_a_summary_that_repeats_everything_scores_a_hundred():
    items = said("The order ORD-4471 goes to Berlin on 2024-05-03.")

    quality = measure(items[0].text, items=items)

    assert quality.score == 100
    assert quality.lost == ()
    assert quality.version == QUALITY_VERSION


def test_an_empty_summary_of_something_scores_nothing():
    assert score("", said("The order ORD-4471 goes to Berlin.")) == 0


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_where_the_user_said_nothing_an_empty_text_scores_nothing_all_the_same(role):
    """What there was nothing of counted as known: an empty text scored up to 80."""
    items = said("The order ORD-4471 goes to Berlin on 2024-05-03.", role=role)
    assert score("", items) == 0
    assert score(items[0].text, items) == 100


def test_what_there_is_nothing_of_leaves_its_weight_to_the_rest():
    # The user names nothing, and half of the words are kept: 0.4 of words and 0.2 of all entities.
    items = [*said("perhaps tomorrow"), *said("ORD-4471", role="assistant")]
    items = [replace(item, id=number, position=number) for number, item in enumerate(items)]
    words = measure("ORD-4471", items=items).user_words
    assert score("ORD-4471", items) == pytest.approx(100 * (0.2 + 0.4 * words) / 0.6, abs=0.01)


def test_nothing_to_know_is_fully_known():
    quality = measure("", items=[])

    assert quality.score == 100
    assert quality.cumulative is None


def test_a_user_who_names_nothing_divides_by_nothing():
    quality = measure("Fine.", items=said("ok", role="assistant"))

    assert quality.user_entities == (0, 0)
    assert quality.user_words == 1


@pytest.mark.parametrize(
    ("written", "summarised"),
    [
        ("It costs 1,250 in all", "the price is 1250"),
        ("It costs 1250 in all", "the price is 1 250"),
        ("It costs $1,250.50 in all", "the price is 1250.50"),
        ("We made 340 million there", "they made 340M"),
        ("The deal had $14.2B behind it", "a deal of 14.2 billion"),
        ("The call is on 2024-05-03 then", "the call is on May 3, 2024"),
        ("The call is on May 3 then", "call: 3 May 2024"),
        ("Come at 8 AM please", "arrives at 08:00"),
        ("The code is PX-4471-B for now", "code px-4471-b"),
        ("We bought from Goldman Sachs there", "Sachs (Goldman) sold it"),
        ("See https://example.com/a/b for it", "see example.com/a/b"),
        ("我们在5月3日见面吧", "5月3号见面"),
    ],
)
def test_another_spelling_is_still_kept(written, summarised):
    quality = measure(summarised, items=said(written))

    assert [fact.text for fact in quality.lost] == []


@pytest.mark.parametrize(
    ("written", "summarised"),
    [
        ("The code is PX-4471 for now", "the code is PX-44712"),
        ("The code is PX-4471 for now", "the code is PX-4471-B"),
        ("It costs 1250 in all", "the price is 12500"),
        ("The version is 2.3.1 there", "version 2.3.10"),
        ("The call is on May 3 then", "the call is on May 13"),
        ("The plan is by Nexa there", "annexation"),
    ],
)
def test_a_part_of_something_longer_is_not_kept(written, summarised):
    assert len(measure(summarised, items=said(written)).lost) == 1


def test_entities_are_counted_by_kind_and_once_each():
    items = said("Ask ann@example.com about PX-4471 and QR-9 in src/app/main.py", "PX-4471 again")

    quality = measure("PX-4471 is in src/app/main.py", items=items)

    assert quality.entities == {"mail": (0, 1), "identifier": (1, 2), "path": (1, 1)}
    assert quality.user_identifiers == (1, 2)


def test_what_the_user_said_counts_double_and_what_tools_said_two_fifths():
    items = [
        *said("the code is PX-4471"),
        *said("the code is QR-5582", role="assistant", start=1),
        *said("the code is ST-6693", role="tool", start=2),
    ]

    quality = measure("", items=items)

    # An identifier counts 3.
    assert [(fact.text, fact.weight) for fact in quality.lost] == [
        ("PX-4471", 6.0),
        ("QR-5582", 3.0),
        ("ST-6693", 1.2),
    ]
    assert quality.user_entities == (0, 6.0)
    assert quality.all_entities == (0, 10.2)


def test_what_a_tool_said_first_and_the_user_later_is_the_users():
    items = [*said("code PX-4471", role="tool"), *said("take PX-4471", start=1)]

    (fact,) = measure("", items=items).lost

    assert (fact.speaker, fact.message, fact.weight) == ("user", "m1", 6.0)


def test_a_lost_fact_says_where_it_stands():
    text = "Please remember this: the code of the door is PX-4471 and nobody else may ever know it."

    (fact,) = measure("a door", items=said(text)).lost

    assert text[fact.start : fact.end] == fact.text == "PX-4471"
    assert fact.context == text[fact.start - 25 : fact.end + 25]
    assert (fact.kind, fact.speaker, fact.message) == ("identifier", "user", "m0")


def test_arguments_of_calls_are_what_tools_said():
    call = ToolCall(id="c", name="find", arguments='{"order": "PX-4471"}')
    items = [Item(id="m0", role="assistant", tool_calls=(call,))]

    (fact,) = measure("", items=items).lost

    assert (fact.text, fact.weight, fact.start, fact.end) == ("PX-4471", 1.2, 0, 0)


def test_the_users_facts_come_first_among_the_lost():
    items = [
        *said("see https://example.com/first", role="assistant"),
        *said("the number is 4711", start=1),
    ]

    assert [fact.speaker for fact in measure("", items=items).lost] == ["user", "assistant"]


def test_lists_are_bounded():
    items = said(" ".join(f"AB-{number}" for number in range(1000, 1600)))

    quality = measure("", items=items)

    assert len(quality.lost) == MOST_LOST
    assert len(quality.facts) == MOST_FACTS


def test_facts_say_what_is_known_for_later():
    items = said("the codes are PX-4471 and QR-5582")

    assert set(measure("PX-4471", items=items).facts) == {
        ("px-4471", True, 6.0),
        ("qr-5582", False, 6.0),
    }


@pytest.mark.parametrize(
    ("written", "summarised", "invented"),
    [
        ("We made 340 million there", "They made 3.4 billion", "3.4 billion"),
        ("We made 340 million there", "They made 340 billion", "340 billion"),
        ("The version 3.4 makes 340 million", "Made 3.4 billion", "3.4 billion"),
        ("The code is PX-4471", "The code is PX-4417", "PX-4417"),
        ("It is in src/app/main.py", "It is in src/app/views.py", "src/app/views.py"),
        ("Write to ann@example.com", "Wrote to bob@example.com", "bob@example.com"),
        ("See https://example.com/a", "See https://example.com/b", "https://example.com/b"),
        ("The call is on May 3", "The call is on May 9", "May 9"),
        ("We bought it from Nexa", "They bought it from Taihua", "Taihua"),
    ],
)
def test_what_nobody_wrote_is_unsupported(written, summarised, invented):
    quality = measure(summarised, items=said(written))

    assert quality.unsupported == (invented,)
    assert quality.unsupported_share > 0


@pytest.mark.parametrize(
    "summarised",
    [
        "## Goal\n- ship it",
        "**Next Steps:** wait for 1250",
        "1. ship it\n2. wait\n13. sleep",
        "- 1,250 in all [#12]",
        "- 1.250 in all [117]",
        "Three files and 3 tests were changed",
        "27 messages were read",
        "- the total is 1250.00",
        "1 250 of them",
        "Requests: The user asks for a refund",
        "[REDACTED:api_key] is set",
        "mid-2023 was good",
    ],
)
def test_what_a_summary_adds_by_itself_is_no_invention(summarised):
    items = said("It costs 1,250 in all for the refund, 2023 was good, around the mid of it.")

    assert measure(summarised, items=items).unsupported == ()


def test_the_summary_before_its_units_and_a_persons_wishes_support_as_well():
    unit = Unit(text="the code is QR-5582", kind=UnitKind.FACT, speaker="", position=0)

    quality = measure(
        "PX-4471, QR-5582, ST-6693",
        items=said("go on"),
        previous="- code PX-4471",
        previous_units=(unit,),
        instructions="keep ST-6693",
    )

    assert quality.unsupported == ()


def test_inventions_lower_the_score():
    items = said("the code of the door is PX-4471")
    honest = "the code of the door is PX-4471"

    assert score(f"{honest}, and QR-5582", items) == pytest.approx(score(honest, items) / 2)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("You must never deploy the shop on a Friday.", "- never deploy the shop on a Friday"),
        ("Do not touch the production database.", "The production database: do not touch"),
        ("Always answer in formal letters.", "Letters must always be answered formal"),
        ("价格里必须包含运费。", "- 价格必须包含运费"),
        ("请不要发布到生产环境。", "- 不要发布到生产环境"),
        ("Niemals die alten Sicherungen löschen!", "- alte Sicherungen niemals löschen"),
        ("Никогда не удаляй резервные копии.", "- никогда не удаляй резервные копии"),
    ],
)
def test_a_rule_is_kept_with_its_content_and_its_not(rule, line):
    assert measure(line, items=said(rule)).rules == (1, 1)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("You must never deploy the shop on a Friday.", "- deploy the shop on a Friday"),
        ("Do not touch the production database.", "- the production database\n- do not worry"),
        ("价格里必须包含运费。", "- 价格 运费"),
    ],
)
def test_a_rule_without_its_not_is_lost(rule, line):
    assert measure(line, items=said(rule)).rules == (0, 1)


def test_what_an_assistant_says_is_no_rule_of_the_user():
    items = said("You must never deploy the shop on a Friday.", role="assistant")

    assert measure("", items=items).rules == (0, 0)


def test_a_summary_in_another_language_does_not_match():
    items = said("客户要求退款，但是还没有说清楚运费由谁来付，我们明天再和他确认。")
    text = "The customer asked for a refund, and it is not clear who has to pay for the transport."

    quality = measure(text, items=items)

    assert not quality.language_matches
    assert quality.language == "en"


def test_the_assistants_language_will_do_as_well():
    items = [
        *said("客户要求退款，但是还没有说清楚运费由谁来付，我们明天再和他确认。"),
        *said(
            "This is what I have found out about it for you, and it was not easy.", role="assistant"
        ),
    ]
    text = "The customer asked for a refund, and it is not clear who has to pay for the transport."

    assert measure(text, items=items).language_matches


def test_a_language_that_nobody_can_tell_matches():
    assert measure(
        "OK 4471", items=said("客户要求退款，但是还没有说清楚运费由谁来付")
    ).language_matches


def test_a_text_that_repeats_itself_says_how_much():
    line = "The customer is asking for a refund. "

    assert measure(line * 4, items=said("a refund")).repeated == pytest.approx(0.75)


def test_what_the_summary_before_named_and_this_one_does_not_is_carried_lost():
    quality = measure(
        "- PX-4471", items=said("go on"), previous="## Facts\n- PX-4471\n- QR-5582\n- ST-6693"
    )

    assert quality.carried == (2, 3)
    assert quality.carried_lost == ("QR-5582", "ST-6693")


def test_what_a_line_replaces_is_not_lost():
    quality = measure(
        "- the bus is NATS (replaces RabbitMQ)",
        items=said("Sorry, forget that: it is NATS"),
        previous="- the bus is RabbitMQ",
    )

    assert quality.carried == (0, 1)


def test_what_the_user_took_back_is_not_lost():
    quality = measure(
        "- nothing else", items=said("remove QR-5582 from it"), previous="- the list has QR-5582"
    )

    assert quality.carried_lost == ()


def test_the_cumulative_share_counts_from_the_first_message_on():
    # Before: two of the user's identifiers, 12. New: one more, 6. Known: two of three.
    units = [
        Unit(text=text, kind=UnitKind.FACT, speaker="", position=0, entities=(text.lower(),))
        for text in ("PX-4471", "QR-5582")
    ]

    quality = measure(
        "- PX-4471\n- ST-6693",
        items=said("and ST-6693"),
        previous="- PX-4471",
        previous_units=units,
        named_before=12.0,
    )

    assert quality.named_weight == 18.0
    assert quality.cumulative == pytest.approx(12 / 18)


def test_what_was_named_before_is_not_counted_as_new():
    first = measure("- PX-4471", items=said("code PX-4471"))

    second = measure(
        "- PX-4471",
        items=said("PX-4471 again"),
        previous="- PX-4471",
        named_before=first.named_weight,
    )

    assert second.named_weight == first.named_weight == 6.0


def test_the_yardstick_is_measured_in_the_same_way():
    items = said("the code of the door is PX-4471, that of the gate QR-5582")
    line = "the code of the gate is QR-5582"

    assert measure("", items=items, yardstick_text=line).yardstick == score(line, items)
    assert measure("", items=items).yardstick == 0


def test_compression_is_the_size_as_a_share_of_what_it_stands_for():
    class Words:
        def count(self, text):
            return len(text.split())

    items = said("one", "two")

    quality = measure("a b c d e", items=items, previous="x " * 5, counter=Words())

    assert quality.compression == pytest.approx(5 / 25)


def test_entities_that_were_found_before_give_the_same_figures():
    items = said("The order ORD-4471 goes to Berlin on 2024-05-03.", "Ask Ann about QR-5582.")
    found = [find_entities(item.text) for item in items]

    assert measure("to Berlin", items=items, entities=found) == measure("to Berlin", items=items)


def test_more_facts_of_equal_shape_score_higher():
    rng = random.Random(12)
    codes = [f"{rng.choice('KLMN')}{rng.randrange(10**5)}-{rng.choice('xyz')}" for _ in range(20)]
    items = said(*(f"the code of part {number} is {code}" for number, code in enumerate(codes)))

    scores = [score("\n".join(codes[:kept]), items) for kept in (2, 8, 14, 20)]

    assert scores == sorted(scores)
    assert len(set(scores)) == 4


@settings(max_examples=80, deadline=None)
@given(text=ANY_TEXT, texts=st.lists(ANY_TEXT, max_size=4), previous=ANY_TEXT)
def test_no_text_breaks_the_measure(text, texts, previous):
    items = [
        Item(id=number, role=role, text=one, position=number)
        for number, (one, role) in enumerate(
            zip(texts, ("user", "assistant", "tool", "system"), strict=False)
        )
    ]

    quality = measure(text, items=items, previous=previous, yardstick_text=previous)

    assert 0 <= quality.score <= 100
    assert 0 <= quality.yardstick <= 100
    assert quality.cumulative is None or 0 <= quality.cumulative <= 1
    assert 0 <= quality.words <= 1


@pytest.mark.parametrize(
    "text", ["a" * 50_000, "1" * 50_000, "1,234," * 8_000, "[" * 50_000, "不" * 20_000]
)
def test_a_long_monotonous_text_takes_no_time(text):
    assert not takes_longer(lambda: measure(text, items=said(text), previous=text), 5)


def test_the_number_of_the_message_that_asked_is_no_number_of_the_text():
    found = measure(
        "- run: make test → exit 0 (asked in #4711)",
        items=(Item(id=1, role="user", text="Please run make test."),),
    )
    assert found.unsupported == ()


ENDLESS = {
    "a number, beside codes that are nearly part of it": (
        "1" * 400_000 + " x",
        "code 11-111 of it\n" * 100,
    ),
    "one order over and over": ("必须。" * 150_000, "- 必须 11-111\n" * 100),
    "orders that all differ": (
        "\n".join(f"you must never do thing {n} here" for n in range(60_000)),
        "\n".join(f"- must never use x{n}y or Zed{n} Bar" for n in range(3_000)),
    ),
    "a document of numbers": (
        json.dumps({f"k{n}": {"v": n * 37} for n in range(60_000)}),
        "the value of k59999 is 2219963",
    ),
    "lines that all differ": (
        "\n".join(f"line {n} has {n * 7919}" for n in range(100_000)),
        "line 99999 has 791892081",
    ),
    "headings and names": ("Foo Bar:\n" * 60_000, "Foo Bar: Zed Qux\n" * 20_000),
    "digits and dots": ("1." * 200_000, "\n".join(f"1-{'1' * n}-1a" for n in range(3, 300))),
    "days": ("1 may " * 100_000, "- 3 may 2021\n" * 500),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_no_text_takes_the_measure_without_end(case):
    text, summary = ENDLESS[case]

    quality = measure(summary, items=said(text), previous=summary, yardstick_text=summary)

    assert 0 <= quality.score <= 100


def test_many_short_messages_come_to_an_end():
    items = said(*(f"line {number} has {number * 7919}" for number in range(30_000)))

    quality = measure("line 7 has 55433", items=items)

    assert sum(whole for _, whole in quality.entities.values()) <= MOST_NAMED + 2


def test_of_a_long_paste_the_head_and_the_end_are_to_be_known():
    paste = f"PX-4471 {'word ' * 10_000} middle QR-5582 {'word ' * 10_000} ST-6693"

    quality = measure("", items=said(paste))

    assert [(fact.text, paste[fact.start : fact.end]) for fact in quality.lost] == [
        ("PX-4471", "PX-4471"),
        ("ST-6693", "ST-6693"),
    ]


def test_what_stands_in_the_middle_of_a_long_paste_is_not_invented():
    paste = f"{'word ' * 10_000} QR-5582 {'word ' * 10_000}"

    assert measure("It is QR-5582.", items=said(paste)).unsupported == ()


def test_what_has_an_invented_number_in_it_was_written_all_the_same():
    before = "The mill runs release 5.5 and has 5 wheels."
    assert not found_in("The mill runs release 5.5.", before, "5")


@pytest.mark.parametrize(
    ("invented", "before"),
    [("ZK-88213", "报告ZK-88213在办公室。"), ("ZK-88213", "報告書ZK-88213は本棚です。")],
)
def test_what_was_invented_stays_so_where_words_have_no_spaces_between(invented, before):
    assert found_in(before, before, invented) == [invented]


def found_in(text, before, invented):
    """Return what nobody wrote of a text that goes on from one with an invention."""
    items = tuple(said("The mill is old, and the wheel turns."))
    job = SummaryJob(items=items, counter=QuarterCounter(), previous=before, invented=(invented,))
    return [fact.text for fact in Findings(text, covered_by(job, material_of(job))).unsupported]

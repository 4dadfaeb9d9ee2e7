"""How a summary reads: whole sentences, answers with their questions, and the state told."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.cues import is_rule
from compaction.engine.extractive.material import gather_units
from compaction.engine.extractive.pieces import Pieces, put_together
from compaction.engine.extractive.selection import weigh
from compaction.engine.extractive.sentences import clause_spans
from compaction.engine.fidelity.alignment import trace
from compaction.engine.provenance import Origin, SourcePiece, UnitKind
from compaction.engine.types import SummaryRequest
from tests.engine.extractive_support import (
    QuarterCounter,
    in_passes,
    item,
    section,
    summarize,
    talk,
    units_in,
)

LONG = (
    "The night ferry to Bodø takes the padded crates of the museum from the southern quay near the "
    "old customs house, and the crew of Captain Okafor loads them behind the second ramp."
)
RULE = (
    "Before you change anything in the booking database (bookings, flights, baggage, cabins, "
    "or the names of passengers), you must list what you are about to do, with the price and the "
    "date of each step, and wait until the customer has said yes to all of it."
)
FILLER = tuple(
    f"assistant: Crate {n} was painted {colour} by the carpenter, who took {n} days for it."
    for n, colour in enumerate(("green", "red", "ochre", "white", "grey", "blue") * 6, start=11)
)


def test_neighbouring_pieces_of_a_sentence_are_one_line():
    units = units_in(item(LONG))
    assert len(units) > 1
    (whole,) = put_together(units)
    assert (whole.text, whole.start, whole.end) == (LONG, 0, len(LONG))


def test_a_piece_whose_neighbour_is_missing_stays_alone():
    units = units_in(item(LONG + " " + LONG.replace("Okafor", "Lindqvist")))
    assert put_together(units[::2]) == units[::2]


def test_what_a_message_lost_in_its_middle_is_not_put_together_with_what_stands_behind():
    """It is stored whole: the next pass knows no place of the piece, and no neighbour."""
    units = units_in(item(LONG.replace("padded crates of the museum from the", "pad...the")))
    assert len(units) > 1
    assert "..." in units[0].text
    assert put_together(units) == units


def test_lines_of_a_list_are_not_put_together():
    units = units_in(item("Flight HAT208 to Newark\nFlight HAT215 to Charlotte"))
    assert put_together(units) == units


@pytest.mark.parametrize(
    "rules",
    [
        "Never deploy the booking service to the production cluster on a Friday or on a holiday\n"
        "Always ask Captain Okafor before you change the price of a cabin on the ferry to Narvik",
        "Never deploy the booking service on a Friday,\nalways ask Captain Okafor for a price,",
        "永远不要在周五部署预订服务，\n必须先问船长再改变船舱的价格，",
    ],
)
def test_rules_on_lines_of_their_own_are_not_put_together(rules):
    units = units_in(item(rules))
    assert [unit.text for unit in put_together(units)] == rules.split("\n")


@pytest.mark.parametrize("end", ["###STOP###", "<|end|>", "</s>", "</s> "])
def test_the_place_of_a_unit_before_a_mark_has_its_words_alone(end):
    text = f"We moved  the crates of the museum \t{end}"
    (unit,) = units_in(item(text))
    assert text[unit.start : unit.end] == "We moved  the crates of the museum"


def test_a_line_put_together_is_exact_and_reproduces_its_message():
    message = item(LONG, position=4)
    text = f"- {LONG}"
    (line,) = trace(text, weigh(units_in(message)))
    assert line.origin is Origin.EXACT
    assert line.sources == (SourcePiece(message=4, start=0, end=len(LONG)),)


def test_what_was_put_together_is_known_again_in_the_next_pass():
    messages = talk(LONG, *FILLER)
    texts = [answer.text for answer in in_passes(messages, 3, target_tokens=400)]
    assert LONG in texts[0]
    assert texts[-1].count("padded crates") == 1
    assert "[summary]" not in texts[-1]


def test_a_question_in_pieces_is_answered_and_known_again_as_a_whole():
    lead = "博物馆的软垫箱子停放在海关大楼后面的第二个坡道上" * 4
    question = f"{lead}，渡轮星期一早上究竟从哪个码头出发？"
    asked = units_in(item(question, position=1))
    assert {unit.kind for unit in asked} == {UnitKind.QUESTION}
    assert len(asked) == 2
    request = SummaryRequest(
        kind="update",
        previous=f"## 待解决问题\n- {question}",
        units=tuple(asked),
        items=(item("渡轮从纳尔维克出发。", role="assistant", position=2),),
    )
    found = gather_units(request)
    assert [unit.kind for unit in found] == [UnitKind.FACT] * 3
    assert [unit.text for unit in found[:2]] == [unit.text for unit in asked]


def test_no_line_is_made_of_units_that_only_look_like_its_pieces():
    units = units_in(item(LONG))
    assert Pieces(units).of(LONG)
    assert not Pieces(units).of(LONG + " And more.")
    assert not Pieces(units[:1]).of(LONG)


def test_a_sentence_parted_for_its_length_alone_gets_its_rest():
    without_marks = LONG.replace(",", "")
    text = summarize(*talk(without_marks, *FILLER), target_tokens=400).text
    assert without_marks in text


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_long_rule_is_never_cut_at_a_comma(role):
    text = summarize(item(RULE, role=role), *talk(*FILLER), target_tokens=500).text
    assert any(line.endswith(RULE) for line in section(text, "Rules"))


@pytest.mark.parametrize(
    "last",
    [
        "###STOP###",
        "Thank you so much for your help!",
        "That's all for now. ###STOP###",
        "Thank you!###STOP###",
        "Vielen Dank!",
        "Vielen Dank für die Hilfe, bis bald!",
        "Thanks, Anna, have a great day!",
    ],
)
def test_marks_and_thanks_are_no_last_state(last):
    messages = talk(
        *FILLER,
        "Please move the crates of the museum to the quay of Narvik.",
        "assistant: The crates of the museum stand on the quay of Narvik since this morning.",
        last,
    )
    text = summarize(*messages, target_tokens=300).text
    state = section(text, "Last state")
    assert state[-1] == (
        "- [assistant] The crates of the museum stand on the quay of Narvik since this morning."
    )
    assert "STOP" not in text


@pytest.mark.parametrize(
    "last",
    [
        "Hey, please stop the export now.",
        "Sure, go ahead with plan B.",
        "Thanks, now delete the old branch.",
        "No problem, cancel the whole order then.",
        "Danke, lösche jetzt den alten Zweig.",
        "Gracias, borra la cuenta.",
        "谢谢，请删除旧账户。",
    ],
)
def test_what_is_said_behind_thanks_is_the_last_state(last):
    text = summarize(*talk("We paint crates.", *FILLER, last), target_tokens=300).text
    assert text.splitlines()[-1] == f"- {last}"


def test_what_the_assistant_said_is_the_state_before_what_a_tool_printed():
    messages = talk(
        *FILLER,
        "Please downgrade all six reservations of the museum.",
        "assistant: The price of all six downgrades is 23,553 dollars.",
        item('{"flight_type": "one_way"}', role="tool", position=99, tool_name="update"),
    )
    state = section(summarize(*messages, target_tokens=300).text, "Last state")
    assert state[-1] == "- [assistant] The price of all six downgrades is 23,553 dollars."


def test_a_short_answer_stands_with_its_question():
    messages = talk(
        "assistant: Which harbour does the night ferry with the crates leave from?",
        "From Narvik.",
        *FILLER,
        "Where do the painted crates stand now, in the shed or on the ramp?",
    )
    text = summarize(*messages, target_tokens=300).text
    facts = section(text, "Facts")
    assert "- From Narvik." in facts
    assert facts[facts.index("- From Narvik.") - 1].endswith("leave from?")


def test_a_short_answer_that_is_the_state_stands_there_with_its_question():
    question = "Which harbour does the night ferry with the crates leave from?"
    messages = talk(*FILLER, f"assistant: {question}", "From Narvik.")
    state = section(summarize(*messages, target_tokens=300).text, "Last state")
    assert state == [f"- [assistant] {question}", "- From Narvik."]


def test_ranges_of_characters_are_no_identifiers():
    messages = talk(
        "Replace the pattern [A-Za-z0-9] by [0-9] in build-7f3a and in ORD-5512-KX.", *FILLER
    )
    text = summarize(*messages, target_tokens=120).text
    assert not {"A-Za-z0-9", "0-9"} & set(" ".join(section(text, "Identifiers")).split("; "))


def test_lines_put_together_stay_within_the_target():
    text = summarize(*talk(LONG, LONG.replace("night", "day"), *FILLER), target_tokens=300).text
    assert QuarterCounter().count(text) <= 300


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (
            "The keeper of the old lamp wrote all of it down by hand because the printer in the "
            "small office was out of paper.",
            "by hand",
        ),
        (
            "Die Wärterin der alten Lampe schrieb alles von Hand auf weil der Drucker im kleinen "
            "Büro kein Papier mehr hatte.",
            "von Hand auf",
        ),
        (
            "The keeper of the old lamp at the far end of the wall goes on in one of four rough "
            "nights, and nobody knows why.",
            "nights,",
        ),
    ],
)
def test_a_sentence_is_parted_where_a_clause_ends_also_a_little_farther_on(text, last):
    start, end = next(iter(clause_spans(text, 0, len(text), longest=90, farther=22)))
    assert text[start:end].endswith(last)


def test_a_line_that_begins_in_the_middle_of_a_phrase_has_the_words_before_it():
    phrase = (
        "It was the keeper of the old lamp at the far end of the northern wall of the harbour of "
        "this town of ours that wrote down Node7713 and Node8824 and Node9935 and Node1146 there."
    )
    made = summarize(*talk(phrase, *FILLER), target_tokens=200).text
    (line,) = (line for line in made.splitlines() if "Node7713" in line)
    assert line.startswith("- It was the keeper")


@pytest.mark.parametrize(
    "text", ["Wow, you must be very talented in languages.", "我一定要注意安全问题。"]
)
def test_what_somebody_gathers_or_intends_is_no_rule(text):
    assert not is_rule(text)


FRAGMENTS = (
    # A condition wants what follows from it, a list its end, a verb its subject.
    "When the padded crates of the museum arrive at the southern quay of the old harbour in rain, "
    "the crew of Captain Okafor loads Node7713 and Node8824 behind the second ramp of the ferry.",
    "Nous avons vu le phare de la pointe du nord avec les cousins de la tante Odile cet été, et "
    "avons noté Node7713 et Node8824 dans le carnet bleu de la capitainerie du vieux port.",
    "Wenn die Kisten aus dem Museum bei Regen am südlichen Kai des alten Hafens ankommen sollten, "
    "lädt die Mannschaft von Kapitän Okafor Node7713 und Node8824 hinter der zweiten Rampe.",
)


@pytest.mark.parametrize("text", FRAGMENTS)
def test_a_line_is_no_condition_and_no_verb_without_the_rest_of_its_sentence(text):
    assert len(units_in(item(text))) > 1
    made = summarize(*talk(text, *FILLER), target_tokens=220).text
    (line,) = (line for line in made.splitlines() if "Node8824" in line)
    assert line == f"- {text}"


def test_no_line_ends_at_a_comma_and_its_source_ends_before_it():
    """The clause before the comma stands alone; what follows it says something else."""
    text = (
        "We store the Node7713 backups of the harbour office in the cellar of the lighthouse, "
        "the weather over the old northern harbour was rather pleasant and mild and calm and warm."
    )
    first, *_ = units_in(item(text, position=1))
    assert first.text.endswith("lighthouse,")
    items = talk(text, *FILLER)
    made = summarize(*items, target_tokens=150)
    lines = made.text.splitlines()
    (line,) = (line for line in lines if "Node7713" in line)
    assert not any(line.endswith((",", "，", ";")) for line in lines)
    found = trace(made.text, weigh(gather_units(SummaryRequest(kind="chunk", items=items))))
    (sourced,) = (one for one in found if "Node7713" in made.text[one.start : one.end])
    (source,) = sourced.sources
    assert sourced.origin is Origin.EXACT
    assert text[source.start : source.end] == line.removeprefix("- ")


def test_a_line_without_its_comma_is_known_again_by_the_next_pass():
    text = (
        "We store the Node7713 backups of the harbour office in the cellar of the lighthouse, "
        "the weather over the old northern harbour was rather pleasant and mild and calm and warm."
    )
    answers = in_passes(talk(text, *FILLER), 4, target_tokens=200)
    last = answers[-1].text.splitlines()
    assert sum("Node7713" in line for line in last) == 1
    assert not any("[summary]" in line for line in last)

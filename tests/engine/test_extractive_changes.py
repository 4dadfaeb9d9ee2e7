"""What a person took back never stands alone, and what replaces it says so."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.changes import with_changes, with_note, without_note
from compaction.engine.provenance import Unit, UnitKind
from tests.engine.extractive_support import CHATTER, item, section, summarize, talk, units_in
from tests.growth import grows_too_fast


def lines(*texts: str) -> list[str]:
    return [with_note(unit) for unit in units_in(*talk(*texts))]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "The message bus runs on RabbitMQ.",
            "Sorry, forget that: the bus runs on NATS.",
            "Sorry, forget that: the bus runs on NATS (replaces RabbitMQ)",
        ),
        (
            "The deadline is 3 May.",
            "Actually the deadline is 9 May.",
            "Actually the deadline is 9 May (replaces 3 May)",
        ),
        (
            "The meeting is on Monday.",
            "Sorry, make that Tuesday.",
            "Sorry, make that Tuesday (replaces Monday in: The meeting is on Monday)",
        ),
        (
            "My favourite colour is green.",
            "Actually, my favourite colour is blue.",
            "Actually, my favourite colour is blue (replaces green)",
        ),
        (
            "Our supplier is Marlow.",
            "Change of plans: our supplier is Kestrel, not Marlow.",
            "Change of plans: our supplier is Kestrel, not Marlow (replaces Marlow)",
        ),
        (
            "Let's use Postgres.",
            "Let's use MySQL instead of Postgres.",
            "Let's use MySQL instead of Postgres (replaces Postgres)",
        ),
        (
            "I'd like coffee with breakfast.",
            "Sorry, make that tea.",
            "Sorry, make that tea (replaces I'd like coffee with breakfast)",
        ),
        (
            "The budget is 500 EUR.",
            "The budget is 700 EUR.",
            "The budget is 700 EUR (replaces 500)",
        ),
        ("The budget is 500.", "The budget is now 700.", "The budget is now 700 (replaces 500)"),
        (
            "数据库用MySQL。",
            "更正:数据库改成PostgreSQL。",
            "更正:数据库改成PostgreSQL (replaces MySQL)",
        ),
        ("会議は月曜日です。", "訂正：会議は火曜日です。", "訂正：会議は火曜日です (replaces 月)"),
        (
            "Das Treffen ist am Montag.",
            "Entschuldigung, das Treffen ist am Dienstag.",
            "Entschuldigung, das Treffen ist am Dienstag (replaces Montag)",
        ),
        (
            "Бюджет 500 рублей.",
            "Извини, бюджет 700 рублей.",
            "Извини, бюджет 700 рублей (replaces 500)",
        ),
        (
            "We store sessions in Redis.",
            "We moved sessions from Redis to Memcached.",
            "We moved sessions from Redis to Memcached (replaces Redis)",
        ),
        (
            "I live in Hamburg.",
            "I no longer live in Hamburg, I moved to Leipzig.",
            "I no longer live in Hamburg, I moved to Leipzig (replaces Hamburg)",
        ),
        (
            "Ship it to 12 Elm Street.",
            "Please ship it to 48 Oak Avenue instead of 12 Elm Street.",
            "Please ship it to 48 Oak Avenue instead of 12 Elm Street (replaces 12 Elm Street)",
        ),
        (
            "The database is MySQL 8.",
            "Scratch that, the database is Postgres 15.",
            "Scratch that, the database is Postgres 15 (replaces MySQL 8)",
        ),
        (
            "La reunión es en Madrid.",
            "Perdón, la reunión es en Sevilla.",
            "Perdón, la reunión es en Sevilla (replaces Madrid)",
        ),
    ],
)
def test_a_correction_takes_the_older_statements_place(old, new, line):
    assert lines(old, "assistant: Noted.", new) == ["Noted.", line]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Please ship parcel MK-1 to Rome.", "Please ship parcel MK-2 to Rome."),
        ("I have 2 kids.", "Actually, I need 3 tickets."),
        ("I visited Paris last year.", "Actually, I also want to visit Rome."),
        ("Please book flight AA12.", "Wait, what about AA13?"),
        ("It is 3 pm.", "It is 5 pm."),
        ("My son is 5.", "My daughter is 7."),
        (
            "**DTW to PHX** on 17 May, Flight Number: HAT035",
            "Actually, I want to change my flights to nonstop options from DTW to JFK and back.",
        ),
        (
            "It’s a one-way trip in Economy class.",
            "Actually, I’d prefer the second cheapest flight in economy class.",
        ),
        (
            "A user of agentSession would set up their listener once.",
            "No, we want to put it in pendingMessageContainer, on the next submit of the user.",
        ),
        ("I'll add a test for that as well.", "The skip rule and its test are gone."),
        ("I love Rome in spring.", "Actually, I have been practising the guitar in Oslo."),
    ],
)
def test_two_statements_about_two_things_both_stay(first, second):
    assert lines(first, second) == [first, second]


@pytest.mark.parametrize(
    "cue",
    ["Sorry, forget that: the bus runs on NATS.", "Couriers no longer get your number at all."],
)
@pytest.mark.parametrize(
    ("older", "behind"),
    [
        (
            "We ship the turbine with Amber.",
            "About the gallery: “No More Cobalt Heron”, agreed.",
        ),
        ("The alias of the garage is kelp_327.", "Note the alias jade_6242 of the greenhouse."),
        ("Only Ilse may approve changes of the festival.", "The owner of the festival is Willow."),
        (
            "The owner of the festival is Basalt.",
            "Only Anselm may approve changes of the festival.",
        ),
    ],
)
def test_a_correction_says_nothing_of_the_next_sentence(cue, older, behind):
    found = lines("The bus runs on RabbitMQ.", older, f"{cue} {behind}")
    assert [line for line in found if older in line] == [older]
    assert "replaces" not in found[-1]


def test_a_cue_alone_means_the_next_sentence():
    assert lines("The bus runs on RabbitMQ.", "Sorry, I misspoke. The bus runs on NATS.") == [
        "Sorry, I misspoke.",
        "The bus runs on NATS (replaces RabbitMQ)",
    ]


def test_a_value_that_holds_now_is_a_change():
    (unit,) = units_in(
        *talk("The owner of the mill is Basalt.", "The owner of the mill is Kestrel now.")
    )
    assert (unit.kind, unit.note) == (UnitKind.CHANGE, "replaces Basalt")


def test_the_older_value_stands_nowhere_alone():
    text = summarize(
        *talk(
            "Let's design the shop. The message bus runs on RabbitMQ.",
            "assistant: Noted: RabbitMQ for the bus.",
            "The hall is blue and the door is red.",
            "Sorry, forget that: the bus runs on NATS.",
            "assistant: Then NATS it is.",
        ),
        ratio=2.0,
    ).text
    assert [line for line in text.splitlines() if "RabbitMQ" in line] == [
        "- Sorry, forget that: the bus runs on NATS (replaces RabbitMQ)"
    ]


def test_a_correction_of_a_later_pass_reaches_what_was_kept():
    first = summarize(*talk("The message bus runs on RabbitMQ.", CHATTER * 2), ratio=0.9)
    answer = summarize(
        item(f"Sorry, forget that: the bus runs on NATS. {CHATTER * 2}", position=9),
        previous=first.text,
        units=first.units,
        ratio=2.0,
    )
    assert answer.text.count("RabbitMQ") == answer.text.count("(replaces RabbitMQ)") == 1


def test_a_correction_of_a_later_pass_reaches_a_text_without_units():
    answer = summarize(
        item("Sorry, forget that: the bus runs on NATS.", position=9),
        previous="## Facts\n- The message bus runs on RabbitMQ.\n- The hall is blue.",
        ratio=2.0,
    )
    assert answer.text.count("RabbitMQ") == answer.text.count("(replaces RabbitMQ)") == 1


def test_a_change_is_carried_on_with_its_note():
    previous = "## Changed\n- Sorry, the bus runs on NATS (replaces RabbitMQ)"
    answer = summarize(item("The hall is blue. " * 9, position=9), previous=previous)
    assert section(answer.text, "Changed") == ["- Sorry, the bus runs on NATS (replaces RabbitMQ)"]


def test_a_value_that_changes_twice_names_the_last_one():
    assert lines("The budget is 500.", "The budget is 700.", "The budget is 900.") == [
        "The budget is 900 (replaces 700)"
    ]


def test_what_is_taken_off_the_list_leaves_it():
    found = lines(
        "Add rye bread to the shopping list.",
        "Put cheddar on the shopping list too.",
        "assistant: Added.",
        "Hm, take it off the list.",
    )
    assert found[0] == "Add rye bread to the shopping list."
    assert found[-1] == "Hm, take it off the list (removes Put cheddar on the shopping list too)"
    assert len([line for line in found if "cheddar" in line]) == 1


def test_of_two_things_on_one_line_the_other_stays():
    assert lines(
        "Add oat milk and rye bread to the shopping list.",
        "Actually, take the oat milk off the list.",
    ) == [
        "Add oat milk and rye bread to the shopping list (later removed: oat milk)",
        "Actually, take the oat milk off the list (removes oat milk)",
    ]


def test_what_was_on_no_list_is_not_removed():
    first = "I finished the security training."
    assert lines(first, "Cancel unused subscriptions.")[0] == first


def test_a_person_among_several_can_take_something_back():
    found = lines(
        "Ann: The message bus runs on RabbitMQ.",
        "Bob: The hall is blue.",
        "Ann: Sorry, forget that: the bus runs on NATS.",
        "Bob: Fine, that is good news.",
    )
    assert "Sorry, forget that: the bus runs on NATS (replaces RabbitMQ)" in found
    assert "The message bus runs on RabbitMQ." not in found


def test_an_assistant_takes_nothing_back():
    first = "The message bus runs on RabbitMQ."
    assert lines(first, "assistant: Sorry, forget that: the bus runs on NATS.")[0] == first


def test_what_a_message_quotes_takes_nothing_back():
    first = "The message bus runs on RabbitMQ."
    assert lines(first, "> Sorry, forget that: the bus runs on NATS.")[0] == first


def test_a_correction_is_a_change():
    units = units_in(*talk("The bus is on RabbitMQ.", "Sorry, the bus is on NATS."))
    assert [unit.kind for unit in units] == [UnitKind.CHANGE]


def test_a_note_is_read_back():
    assert without_note("The bus runs on NATS (replaces RabbitMQ)") == (
        "The bus runs on NATS",
        "replaces RabbitMQ",
    )
    assert without_note("It rained (a little)") == ("It rained (a little)", "")


def test_a_thing_that_is_named_and_corrected_again_and_again_costs_in_proportion():
    def correct(count: int) -> list[Unit]:
        units = [
            unit
            for n in range(count)
            for unit in (
                _said(f"Module number {n} {_word(n)} is built on ALPHA-1.", 2 * n, "alpha-1"),
                _said(
                    f"Sorry, module number {n} {_word(n)} is built on BETA-2, not on ALPHA-1.",
                    2 * n + 1,
                    "beta-2",
                    "alpha-1",
                ),
                _said(f"Suite {_word(n)} of ALPHA-1 stays green.", 2 * n + 1, "alpha-1"),
            )
        ]
        return with_changes(units)

    kept = {unit.text for unit in correct(4)}
    assert not any(text.startswith("Module") for text in kept)
    assert not grows_too_fast(lambda count: len(correct(count)), 200)


def test_subjects_with_a_word_in_common_cost_in_proportion_too():
    def correct(count: int) -> list[Unit]:
        names = [f"{_word(n)} {_word(n + 5000)} {_word(n + 9000)}" for n in range(count)]
        units = [_said(f"Module {name} is built on ALPHA-1.", 0, "alpha-1") for name in names]
        units += [
            _said(
                f"Sorry, module {name} is built on BETA-2, not on ALPHA-1.",
                n,
                "beta-2",
                "alpha-1",
            )
            for n, name in enumerate(names, 1)
        ]
        return with_changes(units)

    assert not any(unit.text.startswith("Module") for unit in correct(4))
    assert not grows_too_fast(lambda count: len(correct(count)), 100)


@pytest.mark.parametrize("mentions", [10, 1000])
def test_an_old_value_never_stands_alone_however_often_its_thing_was_named(mentions):
    old = "The database of the shop is ALPHA-1."
    again = "Fine, the database of the shop is ALPHA-1 then, as agreed."
    new = "Sorry, the database of the shop is BETA-2, not ALPHA-1."
    between = [
        _said(f"Suite {n} of lemon trees with ALPHA-1 stays green.", n, "alpha-1")
        for n in range(2, 2 + mentions)
    ]
    kept = with_changes(
        [
            _said(old, 0, "alpha-1"),
            _said(again, 1, "alpha-1"),
            *between,
            _said(new, 2 + mentions, "beta-2", "alpha-1"),
        ]
    )
    assert [unit.text for unit in kept] == [*(unit.text for unit in between), new]


def _said(text: str, position: int, *entities: str) -> Unit:
    return Unit(text, UnitKind.FACT, "", position, position, 0, len(text), entities)


def _word(number: int) -> str:
    """Return a word of its own for each number."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number * 7919 % 99991:05}")

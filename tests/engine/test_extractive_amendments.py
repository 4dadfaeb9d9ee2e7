"""A statement with little but a new value takes the place of the one said just before.

In doubt both stay: a wrong replacement is gone from every later summary.
"""

from __future__ import annotations

import random

import pytest

from compaction.engine.extractive.changes import with_changes, with_note
from tests.engine.extractive_support import talk, units_in

SEED = 61207

AMENDED = [
    ("We meet at 15:00.", "Rather 15:30.", "15:00"),
    ("Bitte 3 Zimmer reservieren.", "Doch lieber 4 Zimmer.", "3"),
    ("Das Treffen ist am Dienstag.", "Lieber doch am Donnerstag.", "Dienstag"),
    ("La réunion est mardi.", "Plutôt jeudi.", "mardi"),
    ("La cita es a las 10:00.", "Que sea a las 11:30.", "10:00"),
    ("La riunione è martedì.", "Meglio giovedì.", "martedì"),
    ("Нас будет 5 человек.", "Лучше 7 человек.", "5"),
    ("我们订3个房间。", "还是订4个房间吧。", "3"),
    ("My surname is Haverkamp.", "I misspelled it: Haverkampf.", "Haverkamp"),
    ("Mein Nachname ist Reinhart.", "Ich habe mich vertippt: Reinhardt.", "Reinhart"),
    ("Mon nom est Lefèbvre.", "Je l'ai mal écrit : Lefebvre.", "Lefèbvre"),
    ("Mi apellido es Gimenes.", "Lo escribí mal: Giménez.", "Gimenes"),
    ("Il mio cognome è Ferari.", "L'ho scritto male: Ferrari.", "Ferari"),
    ("Моя фамилия Соколов.", "Я опечатался: Соколин.", "Соколов"),
]

SAID_AGAIN = [
    ("The server name is falcon-3.", "I spelled that wrong, the server name is falcon-8."),
    ("Das Codewort ist Kranich.", "Nee, das Codewort ist Reiher."),
    ("El precio es de 80 euros.", "Han subido el precio a 95 euros."),
    ("El taller está en Getafe.", "Rectifico: el taller está en Leganés."),
    ("Пароль от шлюза 4471.", "Точнее, пароль от шлюза 4417."),
    ("会议在周一。", "不对，会议在周二。"),
    ("参加者は5人です。", "やっぱり参加者は7人です。"),
    ("予算は50万円です。", "予算は80万円に引き上げられました。"),
]

OTHERS = [
    ("Lunch is at 12:30.", "I would rather take the train at 15:30."),
    ("The tracking code is ZX-4471.", "I mistyped the customer number: 88213."),
    ("Meeting with Hanna.", "Johanna misspelled Hannah."),
    ("Das Treffen ist am Dienstag.", "Ich fahre lieber am Donnerstag nach Hause."),
    ("Wir brauchen 3 Zimmer.", "Den Tisch doch lieber für 4 Personen."),
    ("On est 5 pour le dîner.", "Le parking coûte plutôt 7 euros."),
    ("La reunión es el martes.", "Mejor voy al gimnasio el jueves."),
    ("Siamo in 5 a cena.", "Facciamo benzina alle 7."),
    ("Il codice è LM-3310.", "Volevo scrivere a Marta alle 18:00."),
    ("Встреча во вторник.", "Нет, спектакль в четверг."),
    ("我们订3个房间。", "还是买4张票吧。"),
    ("会议在周一。", "不对，聚餐在周二。"),
    ("参加者は5人です。", "やっぱり電車は7時です。"),
]


def told(*texts: str) -> list[str]:
    return [with_note(unit) for unit in with_changes(units_in(*talk(*texts)))]


@pytest.mark.parametrize(("older", "newer", "value"), AMENDED)
def test_a_bare_value_takes_the_place_of_the_one_before(older, newer, value):
    found = told(older, "assistant: Noted.", newer)
    assert older not in found
    assert any(f"replaces {value} in: {older.rstrip('.。')}" in text for text in found)


@pytest.mark.parametrize(("older", "newer"), SAID_AGAIN)
def test_what_is_said_again_with_another_value_holds(older, newer):
    found = told(older, "assistant: Noted.", newer)
    assert older not in found
    assert any("replaces" in text for text in found)


@pytest.mark.parametrize(("first", "second"), OTHERS)
def test_the_same_words_about_another_thing_replace_nothing(first, second):
    assert first in told(first, "assistant: Noted.", second)


def test_an_answer_to_a_question_replaces_nothing():
    found = told(
        "Das Treffen ist am Dienstag.", "assistant: Wann kommt das Paket?", "Lieber Montag."
    )
    assert "Das Treffen ist am Dienstag." in found


def test_names_whose_digits_or_letters_were_turned_are_told_to_be_the_same():
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for _ in range(20):
        digits = rng.sample("123456789", 4)
        turned = [*digits[:2], digits[3], digits[2]]
        letters = "".join(rng.sample("BCDFGHJKLM", 2))
        right, wrong = (f"{letters}-{''.join(one)}" for one in (turned, digits))
        older = f"The parcel's code is {wrong}."
        assert older not in told(older, "assistant: Noted.", f"I mistyped it: {right}.")

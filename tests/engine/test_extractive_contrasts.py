"""A value that a person denies beside the one that holds is taken back, in every language."""

from __future__ import annotations

from functools import partial

import pytest

from compaction.engine.extractive.contrasts import parts_taken_back
from compaction.engine.extractive.corrections import (
    AS_WELL,
    is_correction,
    subjects_of,
)
from compaction.engine.extractive.renewals import renewed
from compaction.engine.extractive.replacing import _GONE, _POINTING, _STRONG, _TAKEN_BACK
from compaction.engine.fidelity.secret_marks import secrets_by_mark
from tests.engine.extractive_support import talk, units_in
from tests.growth import takes_longer

DENIED = [
    ("The mill runs on Onyx since May.", "The mill doesn't run on Onyx but on Amber.", "Onyx"),
    ("The mill runs on Onyx since May.", "For the mill it isn't Onyx, it's Amber.", "Onyx"),
    ("The mill runs on Node83 since May.", "The mill runs on Node836, not on Node83.", "Node83"),
    ("The mill runs on Onyx since May.", "I said Onyx for the mill; I meant Amber.", "Onyx"),
    ("The mill runs on Onyx since May.", "Scrap Onyx, the mill runs on Amber.", "Onyx"),
    ("The mill runs on Onyx since May.", "We swapped Onyx for Amber on the mill.", "Onyx"),
    ("The price is 40 EUR.", "The price is not 40 EUR but 55 EUR.", "40"),
    ("The wall is green.", "The wall is blue, not green.", "green"),
    ("Die Mühle läuft auf Onyx.", "Die Mühle läuft nicht auf Onyx, sondern auf Amber.", "Onyx"),
    ("Die Mühle läuft auf Onyx.", "Wir haben die Mühle von Onyx auf Amber umgestellt.", "Onyx"),
    ("Die Mühle läuft auf Onyx.", "Die Mühle nutzt Amber anstatt Onyx.", "Onyx"),
    ("Der Termin ist am 3. Mai.", "Der Termin ist nicht am 3. Mai, sondern am 9. Mai.", "3. Mai"),
    ("Die Wand ist rot.", "Die Wand ist nicht rot, sondern blau.", "rot"),
    ("La serre est à Lille.", "La serre n'est pas à Lille mais à Metz.", "Lille"),
    ("La serre tourne sur Onyx.", "La serre est passée de Onyx à Amber.", "Onyx"),
    ("Le mur est vert.", "Le mur n'est pas vert mais bleu.", "vert"),
    ("La bomba usa Onyx.", "La bomba no usa Onyx sino Amber.", "Onyx"),
    ("La bomba usa Onyx.", "Cambiamos Onyx por Amber en la bomba.", "Onyx"),
    ("Vivo en Bilbao.", "Ya no vivo en Bilbao, ahora vivo en Vigo.", "Bilbao"),
    ("La serra usa Onyx.", "La serra usa Amber invece di Onyx.", "Onyx"),
    ("A bomba usa Onyx.", "Não é Onyx, e sim Amber na bomba.", "Onyx"),
    ("De pomp draait op Onyx.", "De pomp draait niet op Onyx maar op Amber.", "Onyx"),
    ("Встреча во вторник.", "Встреча не во вторник, а в среду.", "вторник"),
    ("Наша мельница на Onyx.", "Мельница перешла с Onyx на Amber.", "Onyx"),
    ("面包房用的是Onyx。", "面包房用的不是Onyx，而是Amber。", "Onyx"),
    ("会议在周二。", "会议不是周二，是周四。", "周二"),
    ("工場はOnyxで動いています。", "工場はOnyxじゃなくてAmberです。", "Onyx"),
    ("工場はOnyxで動いています。", "工場をOnyxからAmberに変更しました。", "Onyx"),
    ("공장은 Onyx로 돌아갑니다.", "공장은 Onyx가 아니라 Amber로 돌아갑니다.", "Onyx"),
    ("방앗간은 Node46로 돌아갑니다.", "방앗간을 Node46에서 Node470로 바꿨습니다.", "Node46"),
    ("The mill runs on Onyx since May.", "Small correction, the mill runs on Amber.", "Onyx"),
    ("The mill runs on Onyx since May.", "As of today the mill runs on Amber.", "Onyx"),
    ("The mill runs on Onyx since May.", "The mill: Amber (was Onyx).", "Onyx"),
    ("The mill runs on Onyx since May.", "The mill used to run on Onyx, now it's Amber.", "Onyx"),
    ("The mill runs on Onyx since May.", "The mill isn't on Onyx any more, but Amber.", "Onyx"),
    ("Die Orgel ist in Kiel.", "Früher war die Orgel in Kiel, heute in Bonn.", "Kiel"),
    ("La bomba usa Onyx.", "La bomba usa ahora Amber.", "Onyx"),
    ("La turbina usa Onyx.", "La turbina non usa più Onyx, ma Amber.", "Onyx"),
    ("De brug draait op Onyx.", "Correctie: de brug draait op Amber.", "Onyx"),
    ("磨坊用的是Basalt。", "磨坊不再用Basalt，改用Tamarind。", "Basalt"),
    ("診療所はNode44です。", "診療所はNode44をやめてNode844にしました。", "Node44"),
    ("도서관은 Node30입니다.", "도서관은 이제 Node455입니다.", "Node30"),
    ("تعمل العيادة على Onyx.", "لا تعمل العيادة على Onyx بل على Amber.", "Onyx"),
]


@pytest.mark.parametrize(("old", "new", "value"), DENIED)
def test_what_is_denied_beside_what_holds_is_replaced(old, new, value):
    (*_, last) = found = units_in(*talk(old, "assistant: Noted.", new))
    assert [unit.text for unit in found] == ["Noted.", new]
    assert last.note == f"replaces {value}"


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("Die Orgel ist in Kiel.", "Ich habe mich bei der Orgel vertan: sie ist in Bonn.", "Kiel"),
        ("La serre est à Lille.", "Je me suis trompé pour la serre : c'est Metz.", "Lille"),
        ("La bomba está en Vigo.", "Me equivoqué con la bomba: es Bilbao.", "Vigo"),
        ("La serra è a Lecce.", "Mi sono sbagliato sulla serra: è Trento.", "Lecce"),
        ("De pomp staat in Breda.", "Ik vergiste me bij de pomp: het is Tilburg.", "Breda"),
        ("工場はv2.1.0です。", "間違えました、工場はv3.0.0です。", "v2.1.0"),
        ("تعمل العيادة على Node46.", "أخطأت، العيادة تعمل على Node47.", "Node46"),
    ],
)
def test_who_owns_up_to_a_mistake_replaces_what_they_said(old, new, value):
    found = units_in(*talk(old, "assistant: Noted.", new))
    assert [(unit.text, unit.note) for unit in found[-1:]] == [(new, f"replaces {value}")]
    assert old not in [unit.text for unit in found]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("The lab is on floor 3.", "The lab moved from floor 3 to floor 5.", "3"),
        ("Builds run on Jenkins.", "We migrated builds from Jenkins to Drone.", "Jenkins"),
        ("Il codice è 4471.", "Il codice ora è 9930.", "4471"),
        ("Wir setzen v2.1.0 ein.", "v2.4.0 ersetzt v2.1.0.", "v2.1.0"),
        ("La reunión es a las 18:00.", "La reunión pasa de las 18:00 a las 19:30.", "18:00"),
        ("The queue runs on RabbitMQ.", "We switched from RabbitMQ to NATS.", "RabbitMQ"),
        ("My favourite drink is Fanta.", "I switched from Fanta to Sprite.", "Fanta"),
        ("Wir wohnen in Bonn.", "Wir sind von Bonn nach Kiel umgezogen.", "Bonn"),
    ],
)
def test_a_move_from_one_value_to_another_replaces_it(old, new, value):
    (*_, last) = found = units_in(*talk(old, "assistant: Noted.", new))
    assert [unit.text for unit in found] == ["Noted.", new]
    assert value in last.note


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The ferry sails from Oslo.", "We moved the piano from Oslo to Bergen."),
        ("The ferry sails to Amber Bay.", "We visit not only Amber Bay but also Cobalt Cove."),
        ("The choir meets on Friday.", "The ferry sails on Monday, not on Friday."),
        ("Das Fest ist in Hamburg.", "Wir fahren nicht nur nach Hamburg, sondern auch nach Kiel."),
        ("La sede está en Sevilla.", "Vamos no solo a Sevilla sino también a Cádiz."),
        ("大阪で開かれます。", "大阪だけでなく京都にも行きます。"),
        ("Анна живёт в Туле.", "Мы едем не только в Тулу, но и в Орёл."),
        ("We use Redis for the cache.", "I can't open Redis from here, but Postgres is fine."),
        ("Redis runs on port 6379.", "Not sure about Redis, but Postgres runs on port 5432."),
        ("The red door leads to the bakery.", "The red house is no bakery, but the library."),
        ("My reservation ID is with Ilse.", "I don't have the reservation ID, but it is eligible."),
        ("Please book flight AA12.", "Now book flight AA13."),
        ("My son is 5.", "My daughter is now 7."),
        ("The train to Rome leaves at 9:00.", "The train to Milan now leaves at 10:00."),
        ("My sister lives in Oslo.", "I flew from Oslo to Bergen and changed planes."),
        ("My sister has a Volvo.", "I switched from a Volvo to a Tesla."),
        ("Tom works at Acme.", "I switched from Acme to Globex."),
        ("My aunt lives in Oslo.", "We moved from Oslo to Bergen."),
        ("The bus stops at Harlow.", "We relocated from Harlow to Stanmore."),
        ("Der Chor singt in Kiel.", "Wir sind von Kiel nach Bonn umgezogen."),
    ],
)
def test_a_contrast_about_something_else_replaces_nothing(first, second):
    found = units_in(*talk(first, "assistant: Noted.", second))
    assert first in [unit.text for unit in found]
    assert not any(unit.note for unit in found)


# What a pattern begins with: only behind it is a run of signs looked at.
BEGUN = (
    "", "not ", "isn't ", "nicht ", "kein ", "n'est pas ", "no ", "non ", "не ", "no longer ",
    "ya no ", "nicht mehr ", "used to ", "(was ", "(früher ", "it is not true that ", "replaces ",
    "off ", "away from ", "we had ", "it's not ", "x, not ", "x and not ", "instead of ", "statt ",
    "au lieu de ", "вместо ", "I said ", "forget ", "vergiss ", "swapped ", "ersetzt ",
    "we moved from ", "umgezogen von ", "переехал с ", "不是", "，不是", "不再用", "把",
    "以前", "以前は",     "예전에는 ", "لم تعد ", "从", "ليس ", "بدلا من ", "انتقل من ", "x、",
    "고 ", "sorry, ", "replace ",
    "we changed ", "take ", "mich ", "me ", "ne ", "from ", "moved a b c d from ", "xxxQ~",
    "discord.com/api/webhooks/", "sig=", "sshpass -p ", "mysqldump ", "WIFI:", "WIFI:P:",
    "cookie: ", "cookie: a=", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0.",
)  # fmt: skip
RUNS = (
    ".", ":", ",", "1.", "1:", "1,", "a,", "a.", "a:", "1.a", "10.0.", "1.3.6.1.4.", "...1", ".,:",
    "a ", "1 ", ", ", ". ", "not ", "\\", ";", "从", "。", "is ", "b-",
)  # fmt: skip
QUICK_SECONDS = 0.02


@pytest.mark.parametrize("run", RUNS)
def test_no_run_of_signs_behind_a_mark_takes_long(run):
    def read(begun: str) -> None:
        text = begun + (run * 200)[:200] + " x\0"
        list(parts_taken_back(text))
        is_correction(text)
        subjects_of(text, cued=True)
        renewed(begun, f"{text} from now on")
        list(secrets_by_mark(text, text.casefold()))
        for value in (_TAKEN_BACK, _STRONG, _GONE, _POINTING, AS_WELL):
            value.search(text)

    assert not [begun for begun in BEGUN if takes_longer(partial(read, begun), QUICK_SECONDS)]


def test_a_version_or_an_address_that_is_denied_is_replaced():
    (*_, last) = units_in(
        *talk("The mill listens on 10.0.0.7.", "The mill listens not on 10.0.0.7 but on 10.0.0.9.")
    )
    assert last.note == "replaces 10.0.0.7"

"""Who says that something is not so, or may be so, changes nothing: what was said stays.

What a statement takes back is gone from every later summary, so that a denial that is read as a
change loses what holds and keeps what nobody said.
"""

from __future__ import annotations

import pytest

from tests.engine.extractive_support import talk, units_in

KAFKA = "The client uses Kafka."
ORION = "Unser Server heißt Orion."
NOT_SO = [
    (KAFKA, "NATS doesn't replace Kafka."),
    (KAFKA, "NATS won't replace Kafka."),
    (KAFKA, "NATS does not supersede Kafka."),
    (KAFKA, "Nobody said that NATS replaces Kafka."),
    (KAFKA, "We never dropped Kafka, and it works."),
    (ORION, "Vega ersetzt Orion nicht."),
    (ORION, "Vega hat Orion nicht abgelöst."),
    (ORION, "Vega löst Orion nicht ab."),
    (ORION, "Orion wird nie durch Vega ersetzt."),
    ("Le serveur est Apollon.", "Hermès ne remplace pas Apollon."),
    ("Le serveur est Apollon.", "Hermès n'a pas remplacé Apollon."),
    ("Usamos Jenkins.", "GitLab no sustituye a Jenkins."),
    ("Usiamo Kafka.", "Pulsar non sostituisce Kafka."),
    ("Usamos o Kafka.", "O Pulsar não substitui o Kafka."),
    ("Wij gebruiken Kafka.", "Pulsar vervangt Kafka niet."),
    ("Мы используем Kafka.", "Pulsar не заменяет Kafka."),
    ("Мы используем Kafka.", "Kafka не заменили на Pulsar."),
    ("The fee is 10 euros.", "The fee has not gone up from 10 to 12 euros."),
]
NOT_YET = [
    (KAFKA, "If we dropped Kafka, we could use NATS."),
    (KAFKA, "Had NATS replaced Kafka, we would know."),
    ("Henrik is our lead.", "If Henrik has left, Marta is our lead."),
    ("The fee is 10 euros.", "If the fee went up from 10 to 12 euros, people would leave."),
]
PERHAPS = [
    (KAFKA, "Maybe NATS replaces Kafka."),
    (KAFKA, "Maybe the client uses NATS instead of Kafka."),
    (KAFKA, "Tom suggests that NATS replaces Kafka."),
    ("Le serveur est Apollon.", "Peut-être que Hermès remplace Apollon."),
    ("Usamos Jenkins.", "Quizás GitLab sustituye a Jenkins."),
    ("Usiamo Kafka.", "Forse Pulsar sostituisce Kafka."),
    ("我们用Kafka。", "可能从Kafka换成Pulsar。"),
    ("The fee is 10 euros.", "Maybe the fee goes up from 10 to 12 euros."),
    ("The meeting is on Monday.", "Maybe the meeting is on Friday instead of Monday."),
    ("The meeting is on Monday.", "Maybe it is not Monday but Friday."),
]
NO_VALUE = [
    ("The port is 8443.", "The port is not 9443 after all."),
    ("The port is 8443.", "Sorry, the port is not 9443."),
    ("Our lead is Henrik.", "From now on our lead is not Marta."),
    ("Le port est 8443.", "Finalement le port n'est pas 9443."),
    ("ポートは8443です。", "今後ポートは9443ではありません。"),
    ("포트는 8443입니다.", "앞으로 포트는 9443이 아닙니다."),
]
TAKEN_BACK = [
    (KAFKA, "If you look at the plan, NATS replaces Kafka."),
    (KAFKA, "That is not right: NATS replaces Kafka."),
    (KAFKA, "Use NATS instead of Kafka if you can."),
    (KAFKA, "Should be NATS instead of Kafka."),
    (KAFKA, "Not only is NATS faster, NATS replaces Kafka."),
    (KAFKA, "We don't use Kafka but NATS."),
    ("Usamos Kafka.", "Se usa Pulsar en vez de Kafka."),
    ("Usamos Kafka.", "No servidor o Pulsar substitui o Kafka."),
    ("The fee is 10 euros.", "No kidding, the fee went up from 10 to 12 euros."),
    ("The port is 8443.", "Sorry, not 8443, the port is 9443."),
]


@pytest.mark.parametrize(("said", "denial"), [*NOT_SO, *NOT_YET, *PERHAPS, *NO_VALUE])
def test_what_is_denied_or_would_be_takes_nothing_back(said, denial):
    found = units_in(*talk(said, denial))
    assert [unit.text for unit in found] == [said, denial]
    assert not any(unit.note for unit in found)


@pytest.mark.parametrize(("said", "change"), TAKEN_BACK)
def test_a_denial_of_something_else_beside_it_does_not_keep_the_old_value(said, change):
    found = units_in(*talk(said, change))
    assert [unit.text for unit in found] == [change]
    assert found[0].note.startswith("replaces ")

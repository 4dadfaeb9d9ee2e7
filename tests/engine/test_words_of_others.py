"""What somebody else says must always or never be done is a fact: it sets no rule of the user's."""

from __future__ import annotations

import pytest

from compaction.engine.fidelity.entities import NAME, find_entities
from compaction.engine.provenance import UnitKind
from tests.engine.extractive_support import summarize, talk, units_in

OF_OTHERS = (
    "My mother always says: never trust a stranger.",
    "The landlord's mail says that tenants must never park there.",
    "According to the manual you must never open the lid.",
    "The sign at the pool: never run here.",
    "The article claims you should never eat at night.",
    "I read that one must never wake a sleepwalker.",
    "He told me ‘never call after nine’ and left.",
    "Here is what the vendor sent:\nAlways reboot twice. Never unplug the router.",
    "I got this letter:\nTenants must never smoke.\nAlways lock the gate.\n\nWhat do you think?",
    "Mein Chef sagt, man darf niemals im Büro essen.",
    "Laut Handbuch darf man niemals den Deckel öffnen.",
    "Diesen Brief habe ich bekommen:\nNiemals das Tor offen lassen.",
    "Mon père disait : il ne faut jamais mentir.",
    "Mi madre decía que nunca debes rendirte.",
    "我妈妈说一定要多喝水。",
)
OF_THE_USER = (
    "My boss said we must always file reports on Monday.",
    "They said in the meeting that we should never deploy on Fridays.",
    "As my doctor told me, I must never eat peanuts.",
    "Our policy says that we must never share accounts.",
    "I said: never email them.",
    "These are my rules:\nAlways answer in French. Never mention the price.",
    "Write a letter:\nNever mention the price in it.",
    "Remember: never book the aisle seat.",
    "Antworte niemals auf Englisch.",
    "Wir haben gesagt, dass wir niemals freitags ausliefern dürfen, niemals.",
    "一定要用简体中文回答。",
)


def rules_in(text: str) -> list[str]:
    units = units_in(*talk(text, "assistant: I see."))
    return [unit.text for unit in units if unit.kind is UnitKind.RULE and not unit.speaker]


@pytest.mark.parametrize("text", OF_OTHERS)
def test_what_somebody_else_forbids_is_no_rule(text):
    assert rules_in(text) == []
    made = summarize(*talk(text, "assistant: I see."), target_tokens=200).text
    assert "## Rules" not in made


@pytest.mark.parametrize("text", OF_THE_USER)
def test_what_holds_for_the_user_is_a_rule(text):
    assert rules_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "She wrote ‘Please wait here’ on it.",
        "She wrote 'Please wait here' on it.",
        "Sie sagte ‚Bitte warten‘ dazu.",
        "Er sagte „Bitte warten“ dazu.",
        "Il a dit « Merci beaucoup » hier.",
    ],
)
def test_what_opens_a_quotation_is_no_name(text):
    assert find_entities(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("She met ‘Anna Karenina’ there.", "Anna Karenina"),
        ("We read ‘Dune’ in May.", "Dune"),
        ("We met Tom O’Brien there.", "Tom O’Brien"),
    ],
)
def test_a_name_in_a_quotation_is_one(text, name):
    assert name in [one.text for one in find_entities(text) if one.kind == NAME]

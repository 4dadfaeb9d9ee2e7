"""Quick looks before slow patterns: whatever a pattern finds, the look lets through.

Each sentence has one way in which its pattern can match, so that a part that is missing shows.
"""

from __future__ import annotations

import pytest

from compaction.engine.extractive import cues, forms
from compaction.engine.extractive.sentences import sentence_spans
from compaction.engine.fidelity.entities import find_entities

RULES = (
    "Do not call.", "Don't call.", "Well, never call him.", "Always knock.", "Only call him.",
    "Make sure it runs.", "Ensure it runs.", "Avoid red tape.", "Under no circumstances call.",
    "Drafts must go.", "Drafts shall go.", "Drafts may not go.", "Drafts should not go.",
    "Drafts should only go.", "It is not allowed.", "It is forbidden.", "It is off-limits.",
    "It is off limits.", "It is prohibited.", "No more than two.", "No later than noon.",
    "It may not exceed two.", "Two at the latest is fine.", "I am allergic to nuts.",
    "Drafts go only on paper.", "I never want it.", "I do not want any.", "Bitte niemals anrufen.",
    "Auf keinen Fall heute.", "Das darf nicht sein.", "On ne dit jamais non.", "Il faut partir.",
    "C'est interdit.", "Elle doit toujours partir.", "Nunca llames.", "No debes salir.",
    "Es prohibido salir.",
)  # fmt: skip
OPEN = (
    "It is tbd.", "It is undecided.", "It is unresolved.", "It is still open.",
    "Two open questions.", "It is not yet decided.", "It remains to be seen.",
    "Waiting for him.", "Awaiting him.", "To be confirmed.", "To be determined.",
)  # fmt: skip
POLITE = (
    "Thank you.", "Looking forward to it.", "So let me know.", "Please feel free.",
    "A great question.", "I am happy to help.", "I hope you win.", "I appreciate it.",
    "You're welcome.", "It is no problem.", "That sounds good.", "But of course.",
    "Any other questions?", "I am glad to.", "Now let me look.", "Give me a moment.",
    "I'm sorry.", "I am sorry to hear it.", "A good morning.", "Here is the list.",
    "Here are some.", "I say as an ai.", "It is nice to meet you.", "Hi all.", "Hello all.",
    "Hey all.", "Sure thing.", "Certainly so.", "Absolutely so.",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cue", "sentences"), [(cues._RULE, RULES), (cues._OPEN, OPEN)], ids=["rule", "open"]
)
def test_every_way_of_a_cue_has_one_of_its_parts(cue: cues.Cue, sentences: tuple[str, ...]):
    assert [one for one in sentences if not cue.pattern.search(one)] == []
    assert [one for one in sentences if not cue.may_be_in(one)] == []
    assert cue.parts
    assert not cue.may_be_in("The parcel came this morning.")


def test_every_polite_phrase_has_one_of_the_parts():
    assert [one for one in POLITE if not forms._BOILERPLATE.search(one)] == []
    assert [one for one in POLITE if not forms._is_boilerplate(one, forms.ALL_SIGNS.phrases)] == []


def test_signs_of_an_output_are_those_of_its_lines():
    output = "all is well\nno\u00a0such file\nTimed  out\nThank\tyou"
    signs = forms.signs_in(output)
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert [forms.is_error(one, signs) for one in lines] == [False, True, True, False]
    assert [forms.is_error(one) for one in lines] == [False, True, True, False]
    assert forms.form_worth(lines[3], signs) == forms.form_worth(lines[3]) == 0.4
    assert forms.signs_in("all is well") == forms.Signs((), ())


@pytest.mark.parametrize("odd", ["\x1c", "\x0b", "\t", "  "])
def test_a_text_of_ascii_is_read_as_any_other(odd: str):
    """One letter more makes it another text, which the pattern for all scripts reads."""
    text = f"Ask Ann Lee{odd}about PX-41 (see a/b.py), 12:30, 1,250 or f(x)=y_1 by May 3. Then go."
    plain = [(one.kind, one.text) for one in find_entities(text)]
    assert [(one.kind, one.text) for one in find_entities(f"{text} é")] == plain
    assert ("identifier", "PX-41") in plain
    spans = list(sentence_spans(text))
    assert list(sentence_spans(f"{text}\né"))[: len(spans)] == spans

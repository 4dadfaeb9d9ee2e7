"""Sentences are pieces of the text as it stands, whatever its language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.extractive.sentences import (
    MAX_SENTENCE_CHARACTERS,
    clause_spans,
    encodable,
    fold,
    is_json,
    remembered,
    sentence_spans,
    shorten,
    split_sentences,
    words_in,
)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Version 3.11 runs. Next", ["Version 3.11 runs.", "Next"]),
        ("Ask Dr. Brown, e.g. today. Done.", ["Ask Dr. Brown, e.g. today.", "Done."]),
        ("J. Smith came.", ["J. Smith came."]),
        ("See https://a.b/c?d=e. Bye", ["See https://a.b/c?d=e.", "Bye"]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("你好。订单已发货！什么时候到？", ["你好。", "订单已发货！", "什么时候到？"]),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ("- one\n* two\n3. three\n> four\n## five", ["one", "two", "three", "four", "five"]),
        ("-5 degrees", ["-5 degrees"]),
        ("a  b\n\n\tc", ["a b", "c"]),
        ("a\x00b", ["a", "b"]),
        ("", []),
    ],
)
def test_text_is_cut_where_a_reader_would(text, sentences):
    assert list(split_sentences(text)) == sentences


def test_a_long_sentence_is_parted_at_a_clause():
    text = "x" * 150 + ", " + "y" * 150
    assert list(split_sentences(text)) == ["x" * 150 + ",", "y" * 150]


def test_a_chinese_sentence_is_parted_sooner():
    text = "订单" * 40 + "，" + "快递" * 40
    assert list(split_sentences(text)) == ["订单" * 40 + "，", "快递" * 40]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"a": 1}', True),
        ('[{"a": 1', True),
        ('\n ["a"]', True),
        ("[attached: a.jpg]", False),
        ("{x}", False),
    ],
)
def test_json_is_told_by_how_it_starts(text, answer):
    assert is_json(text) is answer


def test_letters_without_a_space_are_parted_anywhere():
    pieces = list(split_sentences("a" * 1000))
    assert "".join(pieces) == "a" * 1000
    assert max(map(len, pieces)) == MAX_SENTENCE_CHARACTERS


@given(st.text(st.characters()))
def test_every_sentence_is_a_bounded_piece_of_the_folded_text(text):
    folded = fold(text)
    for sentence in split_sentences(text):
        assert sentence in folded
        assert 0 < len(sentence) <= MAX_SENTENCE_CHARACTERS
        assert encodable(sentence) == sentence


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 10, "one two…"),
        ("abcdefgh", 5, "abcd…"),
        ("abc", 1, "a"),
    ],
)
def test_a_shortened_text_ends_with_an_ellipsis(text, limit, short):
    assert shorten(text, limit) == short


@given(st.text(st.characters(), max_size=300), st.integers(min_value=4, max_value=200))
def test_clauses_are_bounded_spans_without_overlaps(text, longest):
    kept = ""
    for start, end in sentence_spans(text):
        for first, last in clause_spans(text, start, end, longest=longest):
            assert 0 < last - first <= longest
            kept += text[first:last]
    assert len(kept) <= len(text)


def test_the_words_of_a_text_are_casefolded_with_their_apostrophes():
    assert words_in("Don’t TOUCH it, don't") == {"don't", "touch", "it"}


@pytest.mark.parametrize(
    "text",
    [
        "Meine Tel. 0151 2345678 gilt nur abends.",
        "Das Paket Nr. 4471 liegt beim Nachbarn.",
        "Wir nehmen z.B. 40 Stühle mit.",
        "Wir nehmen z. B. 40 Stühle mit.",
        "Es sind ca. 250 Gäste bzw. 30 Tische.",
        "Siehe Abs. 3 und S. 12 im Vertrag.",
        "Invoice No. 8812 is still unpaid.",
        "It takes approx. 45 minutes by train.",
        "Call ext. 204 or see p. 17 of the manual.",
        "Mon tél. 06 12 34 56 78 ne marche plus.",
        "On prend p. ex. 12 chaises.",
        "Mi tel. 612 345 678 no funciona.",
        "Llevamos p. ej. 12 sillas y aprox. 3 mesas.",
        "Het kost bijv. 40 euro, zie blz. 12 daarvan.",
        "Мой тел. 8 912 345 67 89 не работает.",
        "Мы живём на ул. Ленина, д. 5, кв. 12 во дворе.",
        "Берём т. е. 40 стульев.",
        "La Sra. Quiroga y el Dr. Haddad vienen juntos.",
        "Hr. Steiner und Fr. Novak kommen um acht.",
    ],
)
def test_an_abbreviation_does_not_cut_a_value_from_its_subject(text):
    assert list(split_sentences(text)) == [text]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("I said no. The bus is late.", "I said no."),
        ("That is the max. We leave at nine.", "That is the max."),
        ("Das ist die Pos. Wir gehen.", "Das ist die Pos."),
        ("We met at the app. Then we left.", "We met at the app."),
    ],
)
def test_a_word_that_is_also_an_abbreviation_ends_a_sentence(text, first):
    assert next(iter(split_sentences(text))) == first


def test_what_is_found_in_short_texts_is_remembered_and_long_ones_are_not_kept():
    looked_at = []

    @remembered(longest=5, most=2)
    def length(text, *, more=0):
        looked_at.append(text)
        return len(text) + more

    assert [length("short"), length("short"), length("short", more=1)] == [5, 5, 6]
    assert [length("longer"), length("longer")] == [6, 6]
    assert looked_at == ["short", "short", "longer", "longer"]
    for text in ("a", "b", "short"):
        length(text)
    assert looked_at[4:] == ["a", "b", "short"]

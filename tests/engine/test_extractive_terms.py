"""What a clause says is weighed by terms: what it names, and its words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.extractive.terms import pairs_of, rarity, terms_of, words_of
from compaction.engine.fidelity.entities import find_entities, key_of, small_words


def kinds(text: str) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in find_entities(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.b/c?d=e.", ("url", "https://a.b/c?d=e")),
        ("write ann@b.org now", ("mail", "ann@b.org")),
        ("open shop/tax.py now", ("path", "shop/tax.py")),
        ("it is MK-2417 there", ("identifier", "MK-2417")),
        ("it is 9f3ac21b there", ("identifier", "9f3ac21b")),
        ("it is user_x there", ("identifier", "user_x")),
        ("call 555-123-4567 now", ("identifier", "555-123-4567")),
        ("on 3 May we go", ("date", "3 May")),
        ("on 2024-05-01 we go", ("date", "2024-05-01")),
        ("在5月3日出发", ("date", "5月3日")),
        ("it costs 49.99 now", ("number", "49.99")),
        ("it costs €1,200 now", ("number", "€1,200")),
        ("then Ann Lee came", ("name", "Ann Lee")),
        ("读《红楼梦》吧", ("name", "红楼梦")),
        ("订单号MK-2417已发货", ("identifier", "MK-2417")),
    ],
)
def test_what_a_text_names_is_told_by_its_form(text, found):
    assert kinds(text) == [found]


@pytest.mark.parametrize(
    "text", ["and/or", "24/7", "the well-known man", "I am OK", "//", "/.", "\\\\"]
)
def test_words_and_bare_marks_name_nothing_but_numbers(text):
    assert [one for one in find_entities(text) if one.kind != "number"] == []


@given(st.text(st.sampled_from("/\\.~:@#-_aA1 \n《》“”年月日")))
def test_an_entity_is_a_piece_of_the_text(text):
    for one in find_entities(text):
        assert text[one.start : one.end] == one.text
        assert one.key == key_of(one.text) != ""


def test_a_word_that_is_written_small_elsewhere_only_starts_the_sentence():
    small = small_words(["the garden is green"])
    assert kinds("GARDEN Lee came") == [("name", "GARDEN Lee")]
    assert [one.text for one in find_entities("Garden Lee came", small=small)] == ["Lee"]


def test_stop_words_say_nothing():
    assert words_of("The garden is where we have been") == ["garden"]


def test_chinese_is_read_in_pairs_without_filler_characters():
    assert pairs_of("我的预算") == ["预算"]
    assert pairs_of("budget") == []


def test_an_entity_weighs_nine_times_a_word_and_a_pair_half():
    terms = terms_of("garden 预算", ["mk-2417"])
    assert terms == {"预算": 0.5, "garden": 1.0, "mk-2417": 9.0}


def test_rarity_counts_clauses_not_weights():
    found = rarity([{"garden": 9.0, "gate": 1.0}, {"garden": 9.0}])
    assert found == {"garden": math.log(1 + 3 / 2), "gate": math.log(1 + 3)}


@pytest.mark.parametrize("token", ["n-1", "i+1", "k-2", "7:version", "12:name"])
def test_a_step_of_a_count_and_a_numbered_word_are_no_identifiers(token):
    assert kinds(f"we take {token} from there") == []


@pytest.mark.parametrize("token", ["N-1", "B-17", "gpt-4", "port:8080", "k8s", "a-103"])
def test_what_looks_like_them_is_one(token):
    assert kinds(f"we take {token} from there") == [("identifier", token)]

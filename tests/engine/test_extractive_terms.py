"""What is worth keeping is told by its shape."""

from __future__ import annotations

import pytest

from compaction.engine.extractive.terms import (
    NAME_WEIGHT,
    NUMBER_WEIGHT,
    WORD_WEIGHT,
    extract_terms,
    is_bare_identifier,
    is_code,
    is_identifier,
    is_reference_number,
    small_words,
)


@pytest.mark.parametrize(
    "token", ["MK-2417", "INV-2024-001", "AB12CD", "A-1234", "INC0012345", "UTF-8", "ORD_99"]
)
def test_capitals_with_digits_are_a_code(token):
    assert is_code(token)


@pytest.mark.parametrize(
    "token", ["Q1", "14.2B", "10AM", "16GB", "2024-05-01T10:00:00Z", "2024", "Hello", "v1.2"]
)
def test_quantities_and_dates_are_no_code(token):
    assert not is_code(token)


@pytest.mark.parametrize(
    "token", ["20240501123", "555-123-4567", "07d36aec627c", "user_1237", "order-12345"]
)
def test_hashes_and_long_numbers_are_identifiers(token):
    assert is_identifier(token)


@pytest.mark.parametrize("token", ["19-month", "513ml", "12345", "deadbeef", "3.14", "well-known"])
def test_plain_numbers_and_words_are_no_identifiers(token):
    assert not is_identifier(token)


@pytest.mark.parametrize(
    ("token", "answer"),
    [("MK-2417", True), ("TT-104872", True), ("F-01", False), ("OF-SCM-W07", False), ("A1", False)],
)
def test_letters_and_four_digits_are_a_reference_number(token, answer):
    assert is_reference_number(token) is answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("MK-2417", True),
        ("ann@b.org", True),
        ("see MK-2417", False),
        ("garden", False),
        ("", False),
    ],
)
def test_an_identifier_without_a_sentence_is_bare(text, answer):
    assert is_bare_identifier(text) is answer


def test_a_row_of_codes_weighs_less_than_their_sum():
    alone, row = extract_terms("MK-2417"), extract_terms("MK-2417 MK-2418 MK-2419")
    assert sum(row.weights.values()) < 2.5 * sum(alone.weights.values())


def test_an_underscore_before_chinese_is_no_part_of_a_code():
    assert extract_terms("LC-SM420_椰糠").codes == ("LC-SM420",)


def test_a_code_is_found_between_chinese_characters():
    assert extract_terms("订单号MK-2417已发货").codes == ("MK-2417",)


def test_mail_addresses_and_handles_are_identifiers():
    assert extract_terms("Write ann@b.org or @ann_b now").identifiers == ("ann@b.org", "@ann_b")


def test_a_name_inside_a_sentence_weighs_more_than_a_word():
    weights = extract_terms("we met Jacob yesterday near the garden").weights
    assert (weights["jacob"], weights["garden"]) == (NAME_WEIGHT, WORD_WEIGHT)


def test_a_word_that_only_starts_the_sentence_is_no_name():
    small = small_words(["the garden is green"])
    assert extract_terms("Garden work", small=small).weights["garden"] == WORD_WEIGHT


def test_a_number_weighs_as_a_number():
    assert extract_terms("it costs 49.99 now").weights["49.99"] == NUMBER_WEIGHT


def test_chinese_is_weighed_in_pairs_without_filler_characters():
    assert set(extract_terms("我的预算").weights) == {"预算"}

"""Text as JSON values: damage is named with its line and costs nothing but itself."""

import pytest

from chatapp.formats.decoding import MAX_DEPTH
from chatapp.formats.reading import (
    compact_json,
    read_document,
)


def values(text: str) -> list[object]:
    return [record.value for record in read_document(text).records]


def test_a_file_that_is_one_value_is_no_lines() -> None:
    document = read_document('\n {"a": [1,\n 2]}\n')

    assert not document.is_lines
    assert document.records[0].value == {"a": [1, 2]}
    assert document.records[0].line == 2


def test_lines_keep_their_numbers_over_blank_ones() -> None:
    document = read_document('{"a": 1}\n\n{"b": 2}\r\n')

    assert document.is_lines
    assert [(record.line, record.value) for record in document.records] == [
        (1, {"a": 1}),
        (3, {"b": 2}),
    ]


def test_two_objects_glued_on_one_line_are_both_read() -> None:
    document = read_document('{"a": 1}{"b": 2}\n{"c": 3}')

    assert [record.line for record in document.records] == [1, 1, 2]
    assert list(document.problems) == []


def test_a_broken_line_is_named_and_the_rest_is_read() -> None:
    document = read_document('{"a": 1}\n{"b": \n{"c": 3}')

    assert [record.value for record in document.records] == [{"a": 1}, {"c": 3}]
    assert [problem.line for problem in document.problems] == [2]
    assert "not readable JSON" in document.problems[0].text


def test_a_line_broken_in_its_middle_keeps_what_stands_before() -> None:
    document = read_document('{"a": 1}{"b": 2}, rest\n{"c": 3}')

    assert [record.value for record in document.records] == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert "from character 17" in document.problems[0].text


def test_separators_of_lines_inside_a_string_do_not_end_the_line() -> None:
    assert values('{"a": "x\u2028y\x85z"}\n{"b": 1}') == [{"a": "x\u2028y\x85z"}, {"b": 1}]


def test_control_characters_in_strings_are_tolerated() -> None:
    assert values('{"a": "tab\tnul\x00"}') == [{"a": "tab\tnul\x00"}]


def test_lone_surrogates_pass_untouched() -> None:
    assert values(r'{"a": "half \ud83d"}') == [{"a": "half \ud83d"}]


def test_numbers_that_json_does_not_have_become_null() -> None:
    assert values('{"a": NaN, "b": -Infinity, "c": 1e999, "d": 1.5}') == [
        {"a": None, "b": None, "c": None, "d": 1.5}
    ]


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 200_000])
def test_a_line_nested_too_deep_is_a_problem(depth: int) -> None:
    document = read_document('{"a": 1}\n' + "[" * depth + "]" * depth + '\n{"b": 2}')

    assert [record.value for record in document.records] == [{"a": 1}, {"b": 2}]
    assert [problem.line for problem in document.problems] == [2]
    assert "nested deeper" in document.problems[0].text


def test_nesting_up_to_the_limit_is_read() -> None:
    assert len(values("[" * MAX_DEPTH + "]" * MAX_DEPTH)) == 1


def test_a_number_with_too_many_digits_is_a_problem() -> None:
    document = read_document('{"a": 1}\n{"b": ' + "9" * 5_000 + "}")

    assert len(document.records) == 1
    assert "too many digits" in document.problems[0].text


def test_compact_json_has_no_spaces_and_keeps_its_characters() -> None:
    assert compact_json({"path": "文件", "n": [1, 2]}) == '{"path":"文件","n":[1,2]}'

"""Files of very many lines: what is told of them, how much of them may be, how long they take."""

from __future__ import annotations

import json

import pytest

from chatapp.formats import FileLimits, TooMuchInFileError, UnknownFormatError, parse
from chatapp.formats.records import Problem, ProblemList
from tests.growth import grows_too_fast

TALK = json.dumps({"messages": [{"role": "user", "content": "Hello?"}]})


def test_the_first_problems_are_told_one_by_one_and_the_others_counted():
    parsed = parse("{}\n" * 1_000 + TALK)
    assert len(parsed.conversations) == 1
    assert len(parsed.problems) == 200
    assert [problem.line for problem in parsed.problems[:3]] == [1, 2, 3]
    assert parsed.problems_left_out == 800


def test_a_list_of_problems_says_how_many_more_there_are():
    problems = ProblemList(Problem(line=number, text="no") for number in range(1, 300_101))
    told = problems.told()
    assert len(told) == 201
    assert told[-1].text == "And 299,900 more parts of the file were left out or mended."


def test_a_list_that_takes_in_another_counts_what_that_one_only_counted():
    first = ProblemList(Problem(line=1, text="no") for _ in range(250))
    both = ProblemList([Problem(line=1, text="no")])
    both += first
    assert (len(both), both.left_out) == (200, 51)


@pytest.mark.parametrize(
    ("content", "limits", "code", "number"),
    [
        ("{}\n" * 51, FileLimits(lines=50), "too_many_lines", "51"),
        ("{} " * 51, FileLimits(lines=50), "too_many_lines", "51"),
        (f"[{','.join(['{}'] * 51)}]", FileLimits(lines=50), "too_many_lines", "51"),
        (f"{TALK}\n" * 3, FileLimits(conversations=2), "too_many_conversations", "3"),
        ("[" * 40 + "]" * 40, FileLimits(marks=39), "too_many_values", "40"),
    ],
)
def test_a_file_that_holds_more_than_it_may_is_refused_with_the_number(
    content, limits, code, number
):
    with pytest.raises(TooMuchInFileError, match=number) as refused:
        parse(content, limits=limits)
    assert refused.value.code == code


def test_a_file_within_its_limits_is_read():
    limits = FileLimits(lines=3, conversations=3, marks=1_000)
    assert len(parse(f"{TALK}\n" * 3, limits=limits).conversations) == 3


def test_one_object_on_many_lines_is_not_many_lines():
    content = json.dumps(json.loads(TALK), indent=1)
    assert content.count("\n") > 4
    assert len(parse(content, limits=FileLimits(lines=2)).conversations) == 1


def test_one_message_behind_many_empty_lines_is_found():
    parsed = parse("{}\n" * 20_000 + TALK)
    assert [len(one.messages) for one in parsed.conversations] == [1]


def test_what_tells_a_format_is_found_behind_many_objects_with_other_keys():
    call = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
    }
    lines = [json.dumps({"role": "user", "content": "Hello?"})] * 500 + [json.dumps(call)]
    assert parse("\n".join(lines)).format == "anthropic"


HOSTILE = {
    "empty objects": "{}\n",
    "empty lists": "[]\n",
    "numbers": "1\n",
    "no JSON": "x\n",
    "objects of one key": '{"a": 1}\n',
    "nested objects": '{"a": {"b": []}}\n',
    "brackets that are never closed": "[",
    "quotation marks": '"',
    "spaces": " ",
    "conversations without a message": '{"messages": []}\n',
    "messages that cannot be read": '{"role": "user", "content": 3}\n',
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_reading_takes_time_in_proportion_to_the_file(piece):
    def refused(count: int) -> None:
        with pytest.raises(UnknownFormatError):
            parse(piece * count)

    assert not grows_too_fast(refused, 1_250, times=16)

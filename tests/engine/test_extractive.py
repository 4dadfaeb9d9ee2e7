"""A summary made of chosen sentences: under headings, in size, carried on, inventing nothing."""

from __future__ import annotations

import json
import re

import pytest

from compaction.engine.extractive.summarizer import OVERHEAD_TOKENS, ExtractiveSummarizer
from compaction.engine.types import SummarizerOverflow, SummaryAnswer, SummaryRequest, ToolCall
from tests.engine.extractive_support import CHATTER, QuarterCounter, item, section, summarize

CONVERSATION = (
    item(
        "Please fix the failing checkout test. The tax must be rounded per line, never per order."
    ),
    item(CHATTER * 3, role="assistant"),
    item("We decided to use Postgres for the ledger. The ticket is MK-2417."),
    item("The rate table lacks Switzerland. All 214 tests pass now.", role="assistant"),
    item(CHATTER * 3),
    item("Liechtenstein uses the Swiss rate. Should I open the pull request?", role="assistant"),
)


@pytest.fixture(scope="module")
def summary() -> SummaryAnswer:
    return summarize(*CONVERSATION, ratio=0.9)


def test_a_request_stands_under_requests(summary):
    assert "- Please fix the failing checkout test." in section(summary.text, "Requests")


def test_a_constraint_stands_under_constraints(summary):
    assert section(summary.text, "Constraints") == [
        "- The tax must be rounded per line, never per order."
    ]


def test_a_decision_stands_under_decisions(summary):
    assert section(summary.text, "Decisions") == ["- We decided to use Postgres for the ledger."]


def test_a_result_says_that_the_assistant_said_it(summary):
    found = section(summary.text, "Results and facts")
    assert "- [assistant] All 214 tests pass now." in found


def test_a_question_at_the_end_is_open(summary):
    assert section(summary.text, "Open questions") == [
        "- [assistant] Should I open the pull request?"
    ]


def test_the_last_exchange_is_the_last_state(summary):
    assert section(summary.text, "Last state") == [
        f"- {CHATTER.strip()}",
        "- [assistant] Liechtenstein uses the Swiss rate.",
    ]


def test_what_was_said_before_the_last_request_stays_under_its_heading():
    answer = summarize(
        item("Please compare the two boots for me."),
        item("The Scarp is warmer than the Moss.", role="assistant"),
        item("Which of the two can be here by Friday?"),
        ratio=2.0,
    )
    found = section(answer.text, "Results and facts")
    assert found == ["- [assistant] The Scarp is warmer than the Moss."]
    assert section(answer.text, "Last state") == ["- Which of the two can be here by Friday?"]


def test_an_answer_says_how_it_came_about(summary):
    counter = QuarterCounter()
    assert summary == SummaryAnswer(
        text=summary.text,
        finish_reason="stop",
        has_tool_calls=False,
        input_tokens=sum(counter.count(one.text) for one in CONVERSATION),
        output_tokens=counter.count(summary.text),
        model="extractive",
        cost=0.0,
    )


def test_nothing_to_summarise_gives_an_empty_answer():
    assert summarize(item("  \n ")).text == ""


def test_a_summary_takes_no_more_than_the_ratio_of_its_input():
    answer = summarize(*CONVERSATION, ratio=0.4)
    assert 0 < answer.output_tokens <= 0.4 * answer.input_tokens


def test_a_summary_takes_no_more_than_the_target():
    answer = summarize(*CONVERSATION, ratio=1.0, target_tokens=60)
    assert 0 < answer.output_tokens <= 60


def test_a_second_try_is_shorter():
    first = summarize(*CONVERSATION)
    again = summarize(*CONVERSATION, reinforced=True)
    assert again.output_tokens <= 0.3 * again.input_tokens < first.output_tokens


def test_a_code_is_kept_however_small_the_summary():
    long = [item(f"{CHATTER}Visitor {n} came by. {CHATTER}") for n in range(30)]
    long[11] = item(f"{CHATTER}Note that parcel MK-2417 waits. {CHATTER}")
    assert "MK-2417" in summarize(*long, target_tokens=60).text


PARCELS = " ".join(f"Parcel MK-{2000 + n} waits near the old harbour gate." for n in range(40))


def test_codes_whose_sentences_do_not_fit_share_a_line():
    answer = summarize(item(PARCELS), target_tokens=200)
    (listed,) = section(answer.text, "Identifiers and numbers")
    assert listed.startswith("- MK-2039, MK-2038, ")


def test_bare_codes_take_a_small_part_of_a_summary():
    listed = section(summarize(item(PARCELS), target_tokens=200).text, "Identifiers and numbers")
    assert QuarterCounter().count("\n".join(listed)) <= 0.15 * 200


def test_a_code_of_a_chosen_sentence_is_not_listed_again():
    text = summarize(item(PARCELS), target_tokens=200).text
    codes = re.findall(r"MK-\d+", text)
    assert len(codes) == len(set(codes)) > 8


def test_reference_numbers_are_listed_before_other_codes():
    codes = [f"XB{n}Q-{n}" for n in range(10, 60)]
    previous = "## Identifiers and numbers\n- " + ", ".join([*codes, "MK-2417", *codes])
    answer = summarize(item(CHATTER * 9), previous=previous, target_tokens=100)
    (listed,) = section(answer.text, "Identifiers and numbers")
    assert listed.startswith("- (earlier) MK-2417")


def test_a_code_in_a_tool_result_is_kept():
    log = "\n".join(f"step {n} done" for n in range(300)).replace("step 77 ", "ref MK-2417 ")
    assert "MK-2417" in summarize(item(log, role="tool"), target_tokens=60).text


def test_of_a_long_log_the_errors_and_the_end_are_kept():
    lines = [f"12:00:{n:02d} INFO step {n} ok" for n in range(60)]
    lines[30] = "ValueError: rate missing"
    answer = summarize(item("\n".join(lines), role="tool", tool_name="bash"), target_tokens=60)
    assert "- [bash] ValueError: rate missing" in answer.text
    assert "step 59 ok" in answer.text
    assert "step 7 ok" not in answer.text


def test_files_and_commands_come_from_tool_calls():
    calls = (
        ToolCall(id="1", name="read_file", arguments=json.dumps({"path": "shop/tax.py"})),
        ToolCall(id="2", name="edit", arguments=json.dumps({"path": "shop/rates.json"})),
        ToolCall(id="3", name="bash", arguments=json.dumps({"command": "make test"})),
    )
    answer = summarize(item(CHATTER * 8, role="assistant", tool_calls=calls), ratio=0.9)
    assert section(answer.text, "Files and commands") == [
        "- [read] shop/tax.py",
        "- [run] make test",
        "- [modified] shop/rates.json",
    ]


def test_a_command_whose_first_line_says_nothing_is_left_out():
    commands = ("python - <<'EOF'\nprint(1)\nEOF", "for n in 1 2; do\nx\ndone", "make test")
    calls = tuple(
        ToolCall(id="1", name="bash", arguments=json.dumps({"command": one})) for one in commands
    )
    answer = summarize(item(CHATTER * 8, role="assistant", tool_calls=calls), ratio=0.9)
    assert section(answer.text, "Files and commands") == ["- [run] make test"]


def test_of_a_tool_result_in_json_the_failure_is_kept():
    fields = ", ".join(f'{{"sku": "part number {n}", "price": {n}.5}}' for n in range(40))
    result = f'{{"ok": false, "lines": [{fields}], "status": "failed, no courier found"}}'
    answer = summarize(item(result, role="tool", tool_name="book"), target_tokens=40)
    assert '- [book] "status": "failed, no courier found"' in answer.text


def test_prose_comes_before_rows_and_fields():
    rows = "\n".join(f"| {n} | {250 + n} mm | {n} | none |" for n in range(30))
    prose = "The larger boot suits your right foot, so we reserved a pair for Thursday."
    answer = summarize(item(f"{rows}\n{prose}\n{rows}", role="assistant"), target_tokens=30)
    assert prose in answer.text
    assert " mm |" not in answer.text


def test_the_arguments_of_other_calls_can_be_chosen():
    call = ToolCall(id="1", name="get_weather", arguments='{"city": "Paris"}')
    answer = summarize(item(CHATTER * 4, role="assistant", tool_calls=(call,)), ratio=0.9)
    assert '- [get_weather] {"city": "Paris"}' in answer.text


def test_chinese_text_gets_chinese_headings():
    answer = summarize(
        item("请帮我查询订单MK-2417的状态。预算不超过5000元。我住在上海市浦东新区。"),
        item("订单正在处理。我们决定采用顺丰快递。", role="assistant"),
        item("什么时候有货？"),
        ratio=2.0,
    )
    assert section(answer.text, "请求") == ["- 请帮我查询订单MK-2417的状态。"]
    assert section(answer.text, "约束") == ["- 预算不超过5000元。"]
    assert section(answer.text, "决定") == ["- [assistant] 我们决定采用顺丰快递。"]
    assert section(answer.text, "最新状态") == ["- 什么时候有货？"]


def test_a_heading_inside_a_message_is_no_heading_of_the_summary():
    answer = summarize(item(f"## Decisions\n# Delete everything now, Jacob\n{CHATTER}"), ratio=0.9)
    assert "## Decisions" not in answer.text
    assert "- Delete everything now, Jacob" in answer.text


def test_what_the_instructions_ask_for_counts_for_more():
    text = "The garden is green. The harbour is blue. The tower is tall. The bridge is long."
    wanted = summarize(item(text), target_tokens=14, instructions="Mention the harbour")
    assert "harbour" in wanted.text
    assert "harbour" not in summarize(item(text), target_tokens=14).text


@pytest.mark.parametrize("text", ["hi", "你好", "!!!", "# x", "MK-2417", "no", "a" * 50, "1"])
def test_even_the_smallest_input_gives_a_line(text):
    answer = summarize(item(text))
    assert answer.text
    assert answer.output_tokens <= max(1, answer.input_tokens - 1)


def test_a_small_input_gives_something_smaller():
    answer = summarize(item("Hello there, how are you?"))
    assert answer.text == "- Hello there, how…"
    assert answer.output_tokens == answer.input_tokens - 1 - 0 == 5


def test_an_input_limit_leaves_room_for_the_answer():
    summarizer = ExtractiveSummarizer(counter=QuarterCounter(), window=8192)
    assert summarizer.input_limit(700) == 8192 - 700 - OVERHEAD_TOKENS


def test_without_a_window_nobody_knows_the_limit():
    assert ExtractiveSummarizer(counter=QuarterCounter()).input_limit(700) is None


def test_a_request_larger_than_the_window_overflows_like_a_server():
    with pytest.raises(SummarizerOverflow) as caught:
        summarize(item("x" * 4000), window=1000, target_tokens=100)
    assert str(caught.value).startswith(
        "This model's maximum context length is 1000 tokens. "
        "However, your messages resulted in 1150 tokens"
    )


def test_a_request_as_large_as_the_limit_fits():
    limit = ExtractiveSummarizer(counter=QuarterCounter(), window=1000).input_limit(100)
    assert limit == 750
    assert summarize(item("x" * 4 * limit), window=1000, target_tokens=100).text
    with pytest.raises(SummarizerOverflow):
        summarize(item("x" * 4 * (limit + 1)), window=1000, target_tokens=100)


def test_the_tokens_stored_with_a_message_count_for_the_window():
    with pytest.raises(SummarizerOverflow):
        summarize(item("short", tokens=5000), window=1000, target_tokens=100)


def test_the_previous_summary_counts_for_the_window():
    with pytest.raises(SummarizerOverflow):
        summarize(item("short"), previous="x" * 4000, window=1000, target_tokens=100)


def test_a_million_letters_without_a_space_are_one_short_line():
    answer = summarize(item("a" * 1_000_000))
    assert 0 < answer.output_tokens <= 700


def test_two_hundred_thousand_tokens_need_few_counts():
    text = "\n".join(f"Line {n} says that word{n % 977} met Name{n % 499}." for n in range(20_000))
    counter = QuarterCounter()
    answer = ExtractiveSummarizer(counter=counter).summarize(
        SummaryRequest(kind="chunk", items=(item(text),), target_tokens=2000)
    )
    assert answer.input_tokens > 200_000
    assert 1900 < answer.output_tokens <= 2000
    assert counter.calls < 500

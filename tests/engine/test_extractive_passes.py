"""Pass after pass: a summary chooses from all that was ever said, and does not wear away."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from compaction.engine.extractive import changes
from compaction.engine.extractive import material as materials
from compaction.engine.extractive.material import Material, gather_units, read_of
from compaction.engine.extractive.summarizer import ExtractiveSummarizer, language_of_request
from compaction.engine.provenance import UnitKind
from compaction.engine.types import SummaryRequest
from tests.engine.extractive_support import (
    CHATTER,
    CODE_FORMS,
    THINGS,
    QuarterCounter,
    code_of,
    in_passes,
    item,
    section,
    summarize,
    talk,
)

PASSES = 27
# Four messages a pass, each with one thing that is found again.
FACTS = [(f"Harbour{n}q", f"Jens{n}k") for n in range(4 * PASSES)]
ITEMS = talk(*(f"Captain {who} sails to {place} in spring. {CHATTER}" for place, who in FACTS))


def known(text: str) -> int:
    return sum(any(p in one and w in one for one in text.splitlines()) for p, w in FACTS)


@pytest.mark.parametrize("keeps_units", [True, False])
@pytest.mark.parametrize("target", [150, 400])
def test_a_summary_never_becomes_smaller_than_what_it_carries_up_to_its_target(target, keeps_units):
    answers = in_passes(ITEMS, PASSES, target_tokens=target, keeps_units=keeps_units)
    sizes = [answer.output_tokens for answer in answers]
    # A line more or less fits: no line here is larger than 30 tokens with its heading.
    for before, after in pairwise(sizes):
        assert after >= min(before, target - 30) - 5
    assert target - 30 <= sizes[-1] <= target


@pytest.mark.parametrize("keeps_units", [True, False])
def test_27_small_passes_know_nearly_what_one_knows(keeps_units):
    one = known(in_passes(ITEMS, 1, target_tokens=400)[-1].text)
    many = known(in_passes(ITEMS, PASSES, target_tokens=400, keeps_units=keeps_units)[-1].text)
    assert one >= 15
    assert many >= 0.9 * one


def test_a_later_pass_chooses_from_all_units_not_from_the_last_text():
    """What lost against louder lines comes back when it is asked for."""
    loud = [f"The parcel MK-{n}, PK-{n} goes to Jens{n}k, Harbour{n}q." for n in range(25)]
    loud[20] = "The lamp LP-20 was painted by Ann Lee."
    first = summarize(*talk(*loud), target_tokens=60)
    assert "lamp" not in first.text
    again = summarize(
        item(CHATTER * 3, position=99),
        previous=first.text,
        units=first.units,
        target_tokens=60,
        instructions="Say what is known about the lamp",
    )
    assert "- The lamp LP-20 was painted by Ann Lee." in again.text


def test_the_units_to_keep_are_bounded():
    # Eight summaries of 100 tokens; a token is about four characters.
    answer = summarize(*ITEMS, target_tokens=100)
    kept = sum(len(unit.text) for unit in answer.units) / 4
    assert 500 < kept <= 8 * 100
    assert [unit.position for unit in answer.units] == sorted(one.position for one in answer.units)


def test_the_units_of_the_text_are_among_those_kept():
    answer = summarize(*ITEMS, target_tokens=100)
    kept = {unit.text for unit in answer.units}
    lines = section(answer.text, "Facts") + section(answer.text, "Last state")
    assert len(lines) > 3
    assert {line.removeprefix("- ") for line in lines} <= kept


def test_a_kept_unit_keeps_its_message():
    first = summarize(*ITEMS[:8], target_tokens=100)
    second = summarize(*ITEMS[8:16], previous=first.text, units=first.units, target_tokens=100)
    old = {unit.text: unit for unit in first.units if "sails" in unit.text}
    assert len(old) == 8
    assert [one for one in second.units if one.text in old] == list(old.values())


def test_a_line_that_a_kept_unit_has_is_not_read_from_the_text_again():
    first = summarize(*ITEMS[:8], target_tokens=400)
    request = SummaryRequest(kind="chunk", previous=first.text, units=first.units)
    assert all(unit.message is not None for unit in gather_units(request))


def test_a_line_of_an_older_summary_has_no_message():
    (unit,) = gather_units(SummaryRequest(kind="chunk", previous="## Rules\n- Never call Ann."))
    assert (unit.message, unit.kind, unit.text) == (None, UnitKind.RULE, "Never call Ann.")


MERGED = (
    "## Requests\n- Fix the tax.\n## Facts\n- The owner is Ann.\n- Ok.\n- Jens waits.",
    "## Rules\n- Never call Bob.\n## Facts\n- Nice.\n- The hall is blue.\n"
    "## Last state\n- Bob left.",
)


def test_a_merge_that_fits_is_kept_whole_under_one_set_of_headings():
    answer = summarize(kind="merge", texts=MERGED)
    assert section(answer.text, "Requests") == ["- Fix the tax."]
    assert section(answer.text, "Rules") == ["- Never call Bob."]
    assert section(answer.text, "Facts") == [
        "- The owner is Ann.",
        "- Ok.",
        "- Jens waits.",
        "- Nice.",
        "- The hall is blue.",
    ]
    assert section(answer.text, "Last state") == ["- Bob left."]


def test_a_merge_of_free_texts_that_fits_is_kept_whole():
    texts = ("Ann lives in Rome. The budget is small.", "Bob moved to Oslo. He has a cat.")
    answer = summarize(kind="merge", texts=texts)
    for sentence in ("Ann lives in Rome.", "The budget is small.", "He has a cat."):
        assert f"- {sentence}" in answer.text


def test_a_merge_keeps_what_both_say_once():
    same = "## Decisions\n- We chose Postgres for it.\n- We chose Oslo for it."
    answer = summarize(kind="merge", texts=(same, same))
    assert section(answer.text, "Decisions")[0] == "- We chose Postgres for it."
    assert answer.text.count("Postgres") == answer.text.count("Oslo") == 1


def test_a_merge_in_which_a_value_changed_says_so():
    texts = (
        "## Facts\n- The budget is 500 EUR.",
        "## Facts\n- The budget is 700 EUR.\n- Ann left.",
    )
    answer = summarize(kind="merge", texts=texts)
    assert "- The budget is 700 EUR (replaces 500)" in answer.text
    assert answer.text.count("500") == 1


def test_a_merge_that_does_not_fit_takes_its_target():
    texts = tuple(
        "\n".join(f"- The {word} of Jens{n} lies in Harbour{n}." for n in range(100))
        for word in ("parcel", "letter")
    )
    answer = summarize(kind="merge", texts=texts, target_tokens=700)
    assert 0.9 * 700 < answer.output_tokens <= 700


def test_a_merge_with_units_of_both_halves_keeps_their_lines():
    halves = [summarize(*ITEMS[:6], ratio=0.9), summarize(*ITEMS[6:12], ratio=0.9)]
    answer = summarize(
        kind="merge",
        texts=tuple(half.text for half in halves),
        units=tuple(unit for half in halves for unit in half.units),
        target_tokens=10**4,
    )
    lines = {line for half in halves for line in half.text.splitlines() if line[:2] == "- "}
    assert lines <= set(answer.text.splitlines())


@pytest.mark.parametrize("passes", [1, 5])
def test_codes_of_twelve_shapes_are_kept_alike(passes):
    rng = random.Random(12)
    kept = {}
    for form in CODE_FORMS:
        planted = [(thing, code_of(form, rng)) for thing in THINGS]
        items = talk(*(f"{CHATTER}The {a} has the number {b} on it. {CHATTER}" for a, b in planted))
        lines = in_passes(items, passes, target_tokens=260)[-1].text.splitlines()
        kept[form] = sum(any(a in one and b in one for one in lines) for a, b in planted)
    assert min(kept.values()) >= 12, kept
    assert max(kept.values()) <= 2 * min(kept.values()), kept


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["Please tell me where the order is and when it will come to us."], "en"),
        (["请帮我查询订单的状态，我住在上海市浦东新区，预算不多。"], "zh"),
        (["注文の状態を確認してください。これは大切な荷物です。"], "ja"),
        (["주문 상태를 확인해 주세요. 이것은 중요한 소포입니다."], "ko"),
        (["Пожалуйста, проверьте статус заказа, это очень важная посылка для нас."], "ru"),
        (
            ["¿Dónde está el pedido? Lo compré para mi hermana pero todavía no ha llegado. "],
            "es",
        ),
        (["Bitte sag mir, wo die Bestellung ist und wann sie bei uns ankommt."], "de"),
        (["Dis-moi s'il te plaît où est la commande et quand elle arrive chez nous."], "fr"),
        (["من فضلك أخبرني أين الطلب ومتى سيصل إلى البيت لأنه مهم جدا"], "ar"),
    ],
)
def test_headings_are_in_the_conversations_language(texts, language):
    items = talk(*(text * 4 for text in texts))
    assert language_of_request(SummaryRequest(kind="chunk", items=items)) == language


def test_there_are_no_headings_where_we_have_no_words_for_the_language():
    greek = "Η παραγγελία βρίσκεται στο λιμάνι και θα έρθει αύριο το πρωί στο σπίτι μας. "
    answer = summarize(*talk(greek * 2, f"Το κόστος είναι 900 ευρώ. {greek}"), ratio=0.9)
    assert answer.text
    assert "##" not in answer.text


def test_what_a_tool_printed_does_not_choose_the_language():
    items = (
        item("订单在哪里？请帮我看看。" * 3),
        item("The order is on its way. " * 99, role="tool"),
    )
    assert language_of_request(SummaryRequest(kind="chunk", items=items)) == "zh"


def test_chinese_lines_stand_under_chinese_headings():
    answer = summarize(
        *talk(
            "请帮我查询订单MK-2417的状态。绝对不要打电话给客户，必须写邮件。我住在上海市浦东新区。",
            "assistant: 订单正在处理。我们决定采用顺丰快递。",
            "天气很好，大家慢慢走回家，港口很安静，船都停在岸边，风也不大。",
        ),
        ratio=0.9,
    )
    assert section(answer.text, "请求") == ["- 请帮我查询订单MK-2417的状态。"]
    assert section(answer.text, "决定") == ["- [assistant] 我们决定采用顺丰快递。"]
    assert section(answer.text, "规则") == ["- 绝对不要打电话给客户，必须写邮件。"]


def test_a_summary_that_is_carried_on_counts_as_input():
    previous = "## Rules\n- Never call before noon."
    answer = summarize(item(CHATTER), previous=previous, ratio=0.9)
    counter = QuarterCounter()
    assert answer.input_tokens == counter.count(CHATTER) + counter.count(previous)


def test_what_was_taken_back_is_looked_for_once_in_a_pass(monkeypatch):
    items = talk(
        *(f"{said} {CHATTER}" for said in ("The gate is D07.", "The hotel is the Granary.")),
        *(f"{said} {CHATTER}" for said in ("Sorry, the gate is E11.", "We fly at 9.")),
    )
    summarizer = ExtractiveSummarizer(counter=QuarterCounter())
    first = summarizer.summarize(SummaryRequest(kind="chunk", items=items[:2], target_tokens=400))
    looks: list[int] = []

    def with_changes(units, **people):
        looks.append(len(units))
        return changes.with_changes(units, **people)

    monkeypatch.setattr(materials, "with_changes", with_changes)
    later = tuple(items[2:])
    held = read_of(later)
    request = SummaryRequest(
        kind="update",
        items=later,
        target_tokens=400,
        previous=first.text,
        units=first.units,
    )
    answer = summarizer.summarize(request)
    measured = Material(replace(request, previous="")).units
    assert "(replaces D07)" in answer.text
    assert measured is held.gathered(request).units
    assert len(looks) == 1

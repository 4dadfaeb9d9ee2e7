"""What holds for every input: nothing is invented, nothing is too large, nothing crashes."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.engine.extractive.headings import CHINESE, NOTE, NOTE_CHINESE, Heading
from compaction.engine.extractive.sentences import encodable, fold
from compaction.engine.extractive.summarizer import MERGE_RATIO, ExtractiveSummarizer
from compaction.engine.strategies.actions import collect_actions
from compaction.engine.types import Item, SummaryRequest, ToolCall


class QuarterCounter:
    def count(self, text: str) -> int:
        return max(1, len(text.encode()) // 4)


TITLES = {f"## {one.value}" for one in Heading} | {f"## {name}" for name in CHINESE.values()}
IDENTIFIER_TITLES = {"## Identifiers and numbers", "## 标识符与数字"}
MARKS = re.compile(r"- (?:\(earlier\) |\(较早\) )?(?:\[[\w.-]{1,40}\] )?")

VOCABULARY = """MK-2417 please must never decided error Ann Rome 49.99 garden harbour tower we
ann@b.org 决定 请查询订单 预算5000元 ? ! . 。 ？ ## - > [tool] (earlier) Decisions a.py"""
WORDS = st.sampled_from([*VOCABULARY.split(), "\n", "\n\n"])
PROSE = st.lists(WORDS, max_size=80).map(" ".join)
TEXTS = st.one_of(PROSE, st.text(st.characters(), max_size=300))
CALLS = st.builds(
    ToolCall,
    id=st.just("c"),
    name=st.sampled_from(["read", "bash", "edit", "weather", "apply_patch", "模型 x"]),
    arguments=st.one_of(
        TEXTS, st.sampled_from(['{"path": "a.py"}', '{"command": "ls  -l\\nx", "path": "\\ud800"}'])
    ),
)
ITEMS = st.builds(
    Item,
    id=st.integers(),
    role=st.sampled_from(["user", "assistant", "tool", "system", "other"]),
    text=TEXTS,
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    tool_name=st.sampled_from(["", "bash", "a b"]),
)
SUMMARIES = st.lists(
    st.one_of(st.sampled_from(sorted(TITLES)), PROSE.map(lambda text: f"- {text}"), TEXTS),
    max_size=8,
).map("\n".join)
REQUESTS = st.builds(
    SummaryRequest,
    kind=st.sampled_from(["chunk", "merge"]),
    items=st.lists(ITEMS, max_size=6).map(tuple),
    texts=st.lists(SUMMARIES, max_size=2).map(tuple),
    previous=st.one_of(st.just(""), SUMMARIES),
    instructions=st.one_of(st.just(""), TEXTS),
    target_tokens=st.integers(min_value=1, max_value=900),
    reinforced=st.booleans(),
)
RATIOS = st.sampled_from([0.1, 0.4, 0.9])


def summarize(request: SummaryRequest, ratio: float):
    return ExtractiveSummarizer(counter=QuarterCounter(), ratio=ratio).summarize(request)


def sources(request: SummaryRequest) -> list[str]:
    actions = collect_actions(request.items)
    listed = (*actions.files_read, *actions.files_modified, *actions.commands)
    calls = (f"{call.name} {call.arguments}" for item in request.items for call in item.tool_calls)
    texts = (item.text for item in request.items)
    return [fold(one) for one in (request.previous, *request.texts, *texts, *calls, *listed)]


@settings(max_examples=300, deadline=None)
@given(REQUESTS, RATIOS)
def test_every_line_is_a_piece_of_the_input(request, ratio):
    known = [*sources(request), *map(encodable, sources(request))]
    identifiers = False
    for line in summarize(request, ratio).text.splitlines():
        if line in TITLES:
            identifiers = line in IDENTIFIER_TITLES
        if line in TITLES or line in (NOTE, NOTE_CHINESE):
            continue
        bare = {
            line,
            line.removeprefix("- "),
            line[len(MARKS.match(line)[0]) :] if line[:2] == "- " else line,
        }
        bare |= {one.removesuffix("…") for one in bare}
        if identifiers:
            bare |= {parts for one in bare for parts in one.split(", ")[:1]}
            rest = {part for one in bare for part in one.split(", ")[1:]}
            assert all(any(part in source for source in known) for part in rest), line
        assert any(one in source for one in bare for source in known), line


@settings(max_examples=300, deadline=None)
@given(REQUESTS, RATIOS)
def test_a_summary_is_never_larger_than_asked_for(request, ratio):
    answer = summarize(request, ratio)
    assert answer.output_tokens <= request.target_tokens
    share = max(ratio, MERGE_RATIO) if request.kind == "merge" else ratio
    assert answer.output_tokens <= max(8, share * answer.input_tokens)
    assert answer.output_tokens <= max(1, answer.input_tokens - 1)


@settings(max_examples=200, deadline=None)
@given(REQUESTS)
def test_the_same_request_has_the_same_answer(request):
    assert summarize(request, 0.4) == summarize(request, 0.4)


@settings(max_examples=200, deadline=None)
@given(REQUESTS)
def test_an_input_with_a_word_in_it_never_gives_an_empty_answer(request):
    if any(character.isalnum() for one in sources(request) for character in one):
        assert summarize(request, 0.4).text


@settings(max_examples=200, deadline=None)
@given(REQUESTS, RATIOS)
def test_every_answer_can_be_stored(request, ratio):
    text = summarize(request, ratio).text
    assert encodable(text) == text
    assert "\x00" not in text


@settings(max_examples=100, deadline=None)
@given(st.lists(ITEMS, min_size=1, max_size=4), st.integers(min_value=40, max_value=200))
def test_summaries_of_summaries_do_not_nest(items, target):
    summary = ""
    for _ in range(3):
        request = SummaryRequest(
            kind="chunk", items=tuple(items), previous=summary, target_tokens=target
        )
        summary = summarize(request, 0.9).text
        lines = summary.splitlines()
        titles = [line for line in lines if line in TITLES]
        assert len(titles) == len(set(titles))
        assert sum(line in (NOTE, NOTE_CHINESE) for line in lines) <= 1

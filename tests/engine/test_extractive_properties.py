"""What holds for every input: nothing is invented, nothing is too large, nothing crashes."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.engine.extractive.changes import without_note
from compaction.engine.extractive.headings import LANGUAGES, SEPARATOR, SummarySection, title
from compaction.engine.extractive.material import gather_units
from compaction.engine.extractive.outcomes import ARROW
from compaction.engine.extractive.selection import weigh
from compaction.engine.extractive.sentences import encodable, fold
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.fidelity.alignment import trace
from compaction.engine.provenance import Origin, UnitKind
from compaction.engine.types import Item, SummaryAnswer, SummaryRequest, ToolCall
from tests.engine.extractive_support import QuarterCounter

TITLES = {title(section, language) for section in SummarySection for language in LANGUAGES}

VOCABULARY = """MK-2417 please must never decided error Ann Rome 49.99 garden harbour tower we
ann@b.org 决定 请查询订单 预算5000元 ? ! . 。 ？ ## - > [tool] (earlier) Decisions a.py sorry
actually is 500 700 instead of take it off list Ann: Bob: " “ ” said ``` (replaces x) / . \\"""
WORDS = st.sampled_from([*VOCABULARY.split(), "\n", "\n\n", "\x00", "\ud800", "\u2028"])
PROSE = st.lists(WORDS, max_size=80).map(" ".join)
TEXTS = st.one_of(PROSE, st.text(st.characters(), max_size=300))
CALLS = st.builds(
    ToolCall,
    id=st.just("c"),
    name=st.sampled_from(["read", "bash", "edit", "weather", "apply_patch", "模型 x", "\ud800"]),
    arguments=st.one_of(
        TEXTS, st.sampled_from(['{"path": "a.py"}', '{"command": "ls  -l\\nx", "path": "\\ud800"}'])
    ),
)
ITEMS = st.builds(
    Item,
    id=st.integers(),
    position=st.integers(min_value=0, max_value=50),
    role=st.sampled_from(["user", "assistant", "tool", "system", "other"]),
    text=TEXTS,
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    tool_name=st.sampled_from(["", "bash", "a b"]),
    tool_call_id=st.sampled_from(["", "c"]),
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
# What the summariser writes itself: who spoke, what is replaced, and the links of an action.
LABEL = re.compile(r"^- (?:\[[^\]\n]{1,41}\] )?")
LINKS = re.compile(r"\s*→\s*|; |^(?:run|read|modified|\S{1,80}): |exit -?\d+|, ")


def summarize(request: SummaryRequest, ratio: float) -> SummaryAnswer:
    return ExtractiveSummarizer(counter=QuarterCounter(), ratio=ratio).summarize(request)


def sources(request: SummaryRequest) -> list[str]:
    calls = (f"{call.name} {call.arguments}" for item in request.items for call in item.tool_calls)
    texts = (item.text for item in request.items)
    return [fold(one) for one in (request.previous, *request.texts, *texts, *calls)]


@settings(max_examples=300, deadline=None)
@given(REQUESTS, RATIOS)
def test_every_unit_but_an_action_is_a_piece_of_the_input(request, ratio):
    known = [*sources(request), *map(encodable, sources(request))]
    for unit in gather_units(request):
        if unit.kind is not UnitKind.ACTION:
            assert any(unit.text in source for source in known), unit


@settings(max_examples=300, deadline=None)
@given(REQUESTS, RATIOS)
def test_every_line_is_a_unit_or_identifiers_of_units(request, ratio):
    units = gather_units(request)
    texts = {unit.text for unit in units}
    lines = [line for line in summarize(request, ratio).text.splitlines() if line not in TITLES]
    said = [*sources(request), *map(encodable, sources(request))]
    for line in lines[1:]:
        text, _ = without_note(LABEL.sub("", line))
        parts = [text, *text.split(SEPARATOR)]
        # Pieces of one sentence that follow each other share a line, without a dash at its end.
        is_joined = any(text in one for one in said)
        known = is_joined or any(one.startswith(text) for one in texts) or ARROW in text
        assert known or all(any(part in one for one in texts) for part in parts[1:]), line


@settings(max_examples=300, deadline=None)
@given(REQUESTS, RATIOS)
def test_a_summary_is_never_larger_than_asked_for(request, ratio):
    answer = summarize(request, ratio)
    assert answer.output_tokens <= request.target_tokens
    if any(item.text for item in request.items):
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
    answer = summarize(request, ratio)
    for text in (answer.text, *(unit.text + unit.note + unit.speaker for unit in answer.units)):
        assert encodable(text) == text
        assert "\x00" not in text


@settings(max_examples=100, deadline=None)
@given(st.lists(ITEMS, min_size=1, max_size=4), st.integers(min_value=40, max_value=200))
def test_summaries_of_summaries_do_not_nest(items, target):
    summary, units = "", ()
    for _ in range(3):
        request = SummaryRequest(
            kind="chunk", items=tuple(items), previous=summary, units=units, target_tokens=target
        )
        answer = summarize(request, 0.9)
        summary, units = answer.text, answer.units
        titles = [line for line in summary.splitlines() if line in TITLES]
        assert len(titles) == len(set(titles))


@settings(max_examples=200, deadline=None)
@given(REQUESTS)
def test_every_line_can_be_traced_and_exact_ones_reproduce_their_text(request):
    contents = {item.id: item.text for item in request.items}
    answer = summarize(request, 0.9)
    for line in trace(answer.text, weigh(gather_units(request))):
        assert answer.text[line.start : line.end].strip() == answer.text[line.start : line.end]
        if line.origin is Origin.EXACT:
            assert all(source.message in contents for source in line.sources)

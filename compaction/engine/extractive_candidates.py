"""The sentences a summary may be made of, each with the heading it belongs under and its worth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from compaction.engine.actions import ACTION_TOOLS, collect_actions
from compaction.engine.extractive_headings import Heading, Line, parse_summary
from compaction.engine.extractive_terms import Terms, extract_terms, small_words
from compaction.engine.sentences import split_lines, split_sentences
from compaction.engine.types import Item, SummaryRequest

ROLE_WORTH = {"user": 1.0, "assistant": 0.8, "system": 0.5, "developer": 0.5, "tool": 0.3}
SPEAKERS = frozenset({"", "assistant", "system", "developer"})
REQUEST_WORTH = 1.3
CONSTRAINT_WORTH = 1.3
DECISION_WORTH = 1.3
ERROR_WORTH = 1.3
TOOL_ERROR_WORTH = 4.0
LOG_END_WORTH = 2.0
LOG_END_LINES = 3
BOILERPLATE_WORTH = 0.5
FIRST_MESSAGE_WORTH = 1.3
LAST_MESSAGE_WORTH = 1.3
CARRIED_WORTH = {
    Heading.REQUESTS: 1.8,
    Heading.CONSTRAINTS: 1.8,
    Heading.DECISIONS: 1.6,
    Heading.QUESTIONS: 1.0,
}
"""A line of an older summary was already chosen once out of many."""
CARRIED_FACT_WORTH = 1.3
CARRIED_OUTPUT_WORTH = 0.6
MERGED_WORTH = 0.9
"""Of two texts that differ, the later one is right."""
FRAGMENT_WORTH = 0.1
"""A line of one or two words, such as a heading inside a message."""

_CARRIED_GROUPS = {Heading.REQUESTS: "first", Heading.STATE: "last"}
_CUES = re.I
_REQUEST = re.compile(
    r"\b(?:please|can you|could you|would you|will you|help me|i(?:'d| would) like|i want|i need|"
    r"we need|let's|need to|make sure|todo|remind me|implement|fix|add|write|create|explain)\b"
    r"|请|帮我|帮忙|我想|我要|我需要|希望|麻烦|能否|能不能|可以.{0,8}吗|需要",
    _CUES,
)
_CONSTRAINT = re.compile(
    r"\b(?:must|never|always|do not|don't|cannot|only if|at most|at least|no more than|no less|"
    r"no later than|deadline|limit(?:ed)?|budget|required?|requirement|constraint|prefer|avoid|"
    r"allergic|forbid(?:den)?|not allowed|before (?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
    r"|必须|不要|不能|不得|不可|只能|至少|至多|最多|禁止|务必|一定要|截止|预算|限制|要求|不超过|避免|偏好",
    _CUES,
)
_DECISION = re.compile(
    r"\b(?:decided?|decision|agreed?|we(?:'ll| will) (?:use|go)|go(?:ing)? with|chose|chosen|"
    r"settled on|switch(?:ed)? to|instead of|approved|confirmed|plan is|opted)\b"
    r"|决定|确定|采用|选择|选定|改为|改成|同意|确认|就用|批准|定为",
    _CUES,
)
_ERROR = re.compile(
    r"\b(?:\w*error|\w*exception|fail(?:ed|s|ure)?|traceback|fatal|panic|denied|timed? ?out|"
    r"timeout|refused|not found|crash(?:ed)?|bug|broken|critical|warning|exit code [1-9]\d*)\b"
    r"|错误|失败|异常|超时|崩溃|报错|拒绝|警告",
    _CUES,
)
_BOILERPLATE = re.compile(
    r"\b(?:thank(?:s| you)|looking forward|let me know|feel free|great question|happy to help|"
    r"hope (?:you|this|that)|appreciate|you're welcome|no problem|sounds good|of course|"
    r"any other questions|glad to)\b"
    r"|谢谢|感谢|不客气|没问题|您好|你好|随时告诉我|希望对你有帮助|好的[，。]",
    _CUES,
)
_DIGITS = re.compile(r"\d+")
_FRAGMENT = re.compile(r"[^\W\d]{1,20}(?: [^\W\d]{1,20})?[.!:]?", re.ASCII)
_QUESTION_END = re.compile(r"[?？][\"'”’)\]]{0,3}$|[吗呢][。]?$")
_TOOL_NAME = re.compile(r"[\w.-]{1,40}")


@dataclass(slots=True, kw_only=True)
class Candidate:
    """One line that may be chosen. `order` is its place in the input, `worth` a factor."""

    line: Line
    order: int = 0
    worth: float = 1.0
    group: str = ""
    terms: Terms = field(default_factory=lambda: Terms(weights={}))

    spoken: bool = True
    """Said by somebody, not printed by a tool."""

    @property
    def key(self) -> str:
        """What two candidates that say the same have in common."""
        return self.line.text.casefold().rstrip(".。!！…")


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything a request offers: the candidates in order, and the lines about actions."""

    candidates: tuple[Candidate, ...]
    actions: tuple[Line, ...]


def gather_material(request: SummaryRequest) -> Material:
    """The candidates and action lines of a request, without duplicates, the newest copy kept."""
    lines: dict[str, Candidate] = {}
    actions: list[Line] = []
    for candidate in _all_candidates(request):
        if candidate.line.heading is Heading.FILES:
            actions.append(candidate.line)
        elif any(character.isalnum() for character in candidate.line.text):
            lines.pop(candidate.key, None)
            lines[candidate.key] = candidate
    actions.extend(_action_lines(request.items))
    candidates = tuple(lines.values())
    _weigh(candidates)
    return Material(candidates=candidates, actions=_latest_actions(actions))


def _weigh(candidates: tuple[Candidate, ...]) -> None:
    """Give each candidate its terms, and less worth the more often its like has come before."""
    small = small_words(candidate.line.text for candidate in candidates)
    alike: dict[str, int] = {}
    for order, candidate in enumerate(candidates):
        text = candidate.line.text
        candidate.order = order
        candidate.terms = extract_terms(text, small=small)
        if candidate.spoken or candidate.group:
            continue
        shape = _DIGITS.sub("0", text)
        alike[shape] = alike.get(shape, 0) + 1
        candidate.worth /= alike[shape]


def _latest_actions(actions: Iterable[Line]) -> tuple[Line, ...]:
    """Each file and command once, where it came last; a file once modified stays modified."""
    latest: dict[str, Line] = {}
    for line in actions:
        known = latest.pop(line.text, None)
        if known is not None and known.label == "modified" and line.label == "read":
            line = replace(known, carried=line.carried)
        latest[line.text] = line
    return tuple(latest.values())


def _all_candidates(request: SummaryRequest) -> Iterator[Candidate]:
    yield from _from_summary(request.previous, carried=True)
    for index, text in enumerate(request.texts):
        last = index == len(request.texts) - 1
        yield from _from_summary(text, carried=not last, factor=1.0 if last else MERGED_WORTH)
    yield from _from_items(request.items, continued=bool(request.previous.strip()))


def _from_summary(summary: str, *, carried: bool, factor: float = 1.0) -> Iterator[Candidate]:
    for text, label, heading, was_carried in parse_summary(summary):
        printed = label not in SPEAKERS
        if heading is None:
            heading = classify(text, role="user", last=False)
        elif heading is Heading.STATE and carried:
            heading = Heading.RESULTS  # it was the last state then
        line = Line(text=text, heading=heading, label=label, carried=carried or was_carried)
        worth = factor * CARRIED_WORTH.get(heading, CARRIED_FACT_WORTH)
        yield Candidate(
            line=line,
            worth=worth * CARRIED_OUTPUT_WORTH if printed else worth,
            group=_CARRIED_GROUPS.get(heading, ""),
        )


def _from_items(items: tuple[Item, ...], *, continued: bool) -> Iterator[Candidate]:
    speaking = [item for item in items if item.text.strip()]
    first_user = next((item for item in speaking if item.role == "user"), None)
    if continued:
        first_user = None  # the session's first request is in the previous summary
    last_user = next((item for item in reversed(speaking) if item.role == "user"), None)
    for item in items:
        last = bool(speaking) and (item is speaking[-1] or item is last_user)
        sentences = list(split_sentences(item.text))
        for index, sentence in enumerate(sentences):
            yield _from_sentence(
                sentence,
                item=item,
                first=item is first_user,
                last=last,
                near_end=len(sentences) - index <= LOG_END_LINES,
            )
        yield from _from_calls(item)


def _from_sentence(
    sentence: str, *, item: Item, first: bool, last: bool, near_end: bool
) -> Candidate:
    worth = ROLE_WORTH.get(item.role, 0.8) * _cue_worth(sentence, role=item.role)
    if item.role == "tool" and near_end:
        worth *= LOG_END_WORTH
    if first:
        worth *= FIRST_MESSAGE_WORTH
    if last:
        worth *= LAST_MESSAGE_WORTH
    heading = classify(sentence, role=item.role, last=last)
    line = Line(text=sentence, heading=heading, label=_label(item))
    group = "first" if first else "last" if last and near_end else ""
    if item.role == "tool" and near_end and not group:
        group = "end"
    return Candidate(line=line, worth=worth, group=group, spoken=item.role != "tool")


def _from_calls(item: Item) -> Iterator[Candidate]:
    for call in item.tool_calls:
        if call.name.strip().casefold() in ACTION_TOOLS:
            continue  # listed as an action
        label = call.name if _TOOL_NAME.fullmatch(call.name) else "call"
        for sentence in split_sentences(call.arguments):
            line = Line(text=sentence, heading=Heading.RESULTS, label=label)
            yield Candidate(line=line, worth=ROLE_WORTH["assistant"])


def _action_lines(items: Iterable[Item]) -> Iterator[Line]:
    actions = collect_actions(items)
    labelled = (
        ("read", actions.files_read),
        ("run", actions.commands),
        ("modified", actions.files_modified),
    )
    for label, texts in labelled:
        for text in texts:
            if folded := next(split_lines(text), ""):
                yield Line(text=folded, heading=Heading.FILES, label=label)


def _cue_worth(sentence: str, *, role: str) -> float:
    worth = 1.0
    if _ERROR.search(sentence):
        worth *= TOOL_ERROR_WORTH if role == "tool" else ERROR_WORTH
    if _BOILERPLATE.search(sentence):
        worth *= BOILERPLATE_WORTH
    if _FRAGMENT.fullmatch(sentence):
        worth *= FRAGMENT_WORTH
    if role == "tool":
        return worth
    for cue, factor in (
        (_REQUEST, REQUEST_WORTH if role == "user" else 1.0),
        (_CONSTRAINT, CONSTRAINT_WORTH),
        (_DECISION, DECISION_WORTH),
    ):
        if cue.search(sentence):
            worth *= factor
    return worth


def classify(sentence: str, *, role: str, last: bool) -> Heading:
    """The heading a sentence belongs under, from its cue words and from who said it when."""
    if role == "tool":
        return Heading.RESULTS
    if _QUESTION_END.search(sentence):
        return Heading.QUESTIONS if last or role != "user" else Heading.REQUESTS
    if _DECISION.search(sentence):
        return Heading.DECISIONS
    if _CONSTRAINT.search(sentence):
        return Heading.CONSTRAINTS
    if role == "user" and _REQUEST.search(sentence):
        return Heading.REQUESTS
    return Heading.RESULTS


def _label(item: Item) -> str:
    if item.role == "user":
        return ""
    name = item.tool_name if item.role == "tool" and item.tool_name else item.role
    return name if _TOOL_NAME.fullmatch(name) else "tool" if item.role == "tool" else ""

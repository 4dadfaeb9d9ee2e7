"""A summariser without a language model: it chooses clauses and puts them under headings.

It invents nothing: every line is a piece of what it was given. It follows nothing either: text is
data, whatever it asks for. It is deterministic, needs no network and works in linear time, so it
can stand in wherever a model is missing, failing or too slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.extractive.composition import POOL_TARGETS, compose, line_key
from compaction.engine.extractive.headings import LANGUAGES, SummarySection, parse_summary
from compaction.engine.extractive.material import Material
from compaction.engine.extractive.pieces import Pieces
from compaction.engine.extractive.selection import Candidate
from compaction.engine.extractive.sentences import (
    MAX_SENTENCE_CHARACTERS,
    encodable,
    fold,
    printable,
    shorten,
)
from compaction.engine.fidelity.languages import LONGEST_LOOK, language_of
from compaction.engine.types import (
    Item,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
    TokenCounter,
)

EXTRACTIVE = "extractive"
"""What is stored as the model of chosen sentences."""
OVERHEAD_TOKENS = 150
"""What a model's own prompt would take; kept so that a window means the same here."""
REINFORCED_SHARE = 0.75
"""A second try asks for less of what is new: the same answer would be judged the same again."""
SMALLEST_LINE_TOKENS = 8
SMALLEST_ADDITION_TOKENS = 60
LARGEST_ADDITION_SHARE = 0.8
SHORT_LOOK = 2000
"""Characters that tell the script of a text whose language nobody knows."""
JOINING_SHARE = 4
"""A merge may be larger than its texts by one part in so many, where that is within its target."""


class ExtractiveSummarizer:
    """Answers any summary request with clauses of its input.

    A summary has at most what it carries and `ratio` of what is new, and never more than its
    target: it does not wear away, however often it is continued. An answer's `units` are what the
    next pass chooses from, too (SummaryRequest.units).
    """

    chooses_sentences = True

    def __init__(
        self,
        *,
        counter: TokenCounter,
        window: int | None = None,
        name: str = EXTRACTIVE,
        ratio: float = 0.4,
    ) -> None:
        self.counter = counter
        self.window = window
        self.name = name
        self.ratio = ratio

    def input_limit(self, target_tokens: int) -> int | None:
        """Tokens of transcript one call can take: the window less the answer; None without one."""
        if self.window is None:
            return None
        return max(0, self.window - target_tokens - OVERHEAD_TOKENS)

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """A summary of at most `target_tokens`; empty only when there is nothing to summarise.

        Raises SummarizerOverflow when a window was given and the request does not fit it.
        """
        items = [self._size_of(item) for item in request.items]
        carried = sum(self._count(text) for text in (request.previous, *request.texts))
        self._check_window(request, items, carried)
        new = sum(items)
        candidates = Material(request).candidates
        made = compose(
            candidates,
            budget=self._budget(request, new=new, carried=carried),
            count=self._count,
            language=language_of_request(request),
            instructions=request.instructions,
            pool_tokens=POOL_TARGETS * request.target_tokens,
            whole=_joined(request),
        )
        text = made.text or self._one_line(candidates, request, size=new + carried)
        return SummaryAnswer(
            text=text,
            input_tokens=new + carried,
            output_tokens=self._count(text),
            model=self.name,
            units=made.units,
        )

    def _budget(self, request: SummaryRequest, *, new: int, carried: int) -> int:
        if not new:
            # What is joined has a bullet before each line, which it may not have had.
            return min(request.target_tokens, carried + carried // JOINING_SHARE)
        room = int(self.ratio * (REINFORCED_SHARE if request.reinforced else 1.0) * new)
        if carried:
            # Of a message or two, a share is less than a line: each pass would add nothing.
            room = max(room, min(SMALLEST_ADDITION_TOKENS, int(LARGEST_ADDITION_SHARE * new)))
        return max(0, min(request.target_tokens, carried + room, new + carried - 1))

    def _size_of(self, item: Item) -> int:
        """Return the tokens of a message as it is read here."""
        return self._count(_item_text(item))

    def _count(self, text: str) -> int:
        return self.counter.count(encodable(text)) if text else 0

    def _check_window(self, request: SummaryRequest, counts: list[int], summaries: int) -> None:
        if self.window is None:
            return
        # What was counted when a message was stored includes what its text does not show.
        pairs = zip(request.items, counts, strict=True)
        items = sum(item.read_tokens or count for item, count in pairs)
        needed = items + summaries + self._count(request.instructions) + OVERHEAD_TOKENS
        if needed > self.window - request.target_tokens:
            raise SummarizerOverflow(
                f"This model's maximum context length is {self.window} tokens. However, your "
                f"messages resulted in {needed} tokens and {request.target_tokens} are kept for "
                "the answer. Please reduce the length of the messages."
            )

    def _one_line(
        self, candidates: Sequence[Candidate], request: SummaryRequest, *, size: int
    ) -> str:
        """The best line alone, cut until it fits: for an input too small for headings."""
        source = _best_text(candidates, request)
        limit = max(1, min(request.target_tokens, size - 1, max(SMALLEST_LINE_TOKENS, size // 2)))
        for prefix in ("- ", ""):
            text = source
            while text:
                count = self._count(prefix + text)
                if count <= limit:
                    return prefix + text
                length = min(len(text) - 1, len(text) * limit // count)
                text = shorten(source, length) if length > 0 else ""
        return source[:1]


def _joined(request: SummaryRequest) -> frozenset[str]:
    """Return the keys of the lines that a merge keeps whole where they fit."""
    if request.items:
        return frozenset()
    lines = [
        fold(encodable(line.text))
        for text in (request.previous, *request.texts)
        for line in parse_summary(text)
        if line.section is not SummarySection.IDENTIFIERS
    ]
    pieces = Pieces(request.units)
    parts = (unit.text for line in lines for unit in pieces.of(line))
    return frozenset(map(line_key, (*lines, *parts)))


def _best_text(candidates: Sequence[Candidate], request: SummaryRequest) -> str:
    if candidates:
        best = max(candidates, key=lambda one: (one.worth * one.whole, -one.order))
        return best.unit.text
    # Nothing but punctuation and symbols: they are all there is to keep.
    calls = (call for item in request.items for call in item.tool_calls)
    texts = (request.previous, *request.texts, *(item.text for item in request.items))
    parts = (*texts, *(part for call in calls for part in (call.arguments, call.name)))
    folded = map(printable, parts)
    return next((text for text in folded if text), "")[:MAX_SENTENCE_CHARACTERS]


def _item_text(item: Item) -> str:
    if not item.tool_calls:
        return item.text
    return "\n".join([item.text, *(f"{call.name} {call.arguments}" for call in item.tool_calls)])


def language_of_request(request: SummaryRequest) -> str:
    """Return the language of what people and models wrote, where there are headings for it.

    English where nobody can tell and the letters are Latin; "" for every other language.
    """
    said = [item.text for item in request.items if item.role != "tool"]
    text = "\n".join((*said, *request.texts, request.previous))[:LONGEST_LOOK]
    language = language_of(text)
    if not language:
        letters = [one for one in text[:SHORT_LOOK] if one.isalpha()]
        language = "en" if 2 * sum(map(str.isascii, letters)) >= len(letters) else ""
    return language if language in LANGUAGES else ""

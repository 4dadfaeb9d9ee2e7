"""A summariser without a language model: it chooses sentences and puts them under headings.

It invents nothing: every line is a piece of what it was given. It follows nothing either: text is
data, whatever it asks for. It is deterministic, needs no network and works in linear time, so it
can stand in wherever a model is missing, failing or too slow.
"""

from __future__ import annotations

from compaction.engine.extractive.candidates import Material, gather_material
from compaction.engine.extractive.composition import compose
from compaction.engine.extractive.selection import gain
from compaction.engine.extractive.sentences import (
    MAX_SENTENCE_CHARACTERS,
    encodable,
    fold,
    is_mainly_chinese,
    shorten,
)
from compaction.engine.types import (
    Item,
    SummarizerOverflow,
    SummaryAnswer,
    SummaryRequest,
    TokenCounter,
)

OVERHEAD_TOKENS = 150
"""What a model's own prompt would take; kept so that a window means the same here."""
REINFORCED_SHARE = 0.75
"""A second try asks for less: the same answer again would be judged the same again."""
MERGE_RATIO = 0.65
"""Summaries were held to `ratio` when they were made: halving them again would only lose more."""
SMALLEST_LINE_TOKENS = 8


class ExtractiveSummarizer:
    """Answers any summary request with sentences of its input, at most `ratio` of its size.

    A merge may take MERGE_RATIO of its two summaries, and in no case more than its target.
    """

    def __init__(
        self,
        *,
        counter: TokenCounter,
        window: int | None = None,
        name: str = "extractive",
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
        items = [self._count(_item_text(item)) for item in request.items]
        summaries = [self._count(text) for text in (request.previous, *request.texts)]
        self._check_window(request, items, sum(summaries))
        input_tokens = sum(items) + sum(summaries)
        text = self._summary(request, input_tokens)
        return SummaryAnswer(
            text=text,
            input_tokens=input_tokens,
            output_tokens=self._count(text),
            model=self.name,
        )

    def _summary(self, request: SummaryRequest, input_tokens: int) -> str:
        material = gather_material(request)
        target = max(1, request.target_tokens)
        share = max(self.ratio, MERGE_RATIO) if request.kind == "merge" else self.ratio
        share *= REINFORCED_SHARE if request.reinforced else 1.0
        budget = min(target, int(share * input_tokens))
        text = compose(
            material,
            budget=budget,
            count=self._count,
            instructions=request.instructions,
            chinese=is_mainly_chinese(_spoken_texts(request)),
        )
        if text:
            return text
        smaller_than_input = max(1, input_tokens - 1)
        limit = min(target, smaller_than_input, max(budget, SMALLEST_LINE_TOKENS))
        return self._one_line(material, request, limit=limit)

    def _count(self, text: str) -> int:
        return self.counter.count(encodable(text)) if text else 0

    def _check_window(self, request: SummaryRequest, counts: list[int], summaries: int) -> None:
        if self.window is None:
            return
        # What was counted when a message was stored includes what its text does not show.
        items = sum(item.tokens or count for item, count in zip(request.items, counts, strict=True))
        needed = items + summaries + self._count(request.instructions) + OVERHEAD_TOKENS
        if needed > self.window - request.target_tokens:
            raise SummarizerOverflow(
                f"This model's maximum context length is {self.window} tokens. However, your "
                f"messages resulted in {needed} tokens and {request.target_tokens} are kept for "
                "the answer. Please reduce the length of the messages."
            )

    def _one_line(self, material: Material, request: SummaryRequest, *, limit: int) -> str:
        """The best line alone, cut until it fits: for an input too small for headings."""
        source = _best_text(material, request)
        for prefix in ("- ", ""):
            text = source
            while text:
                count = self._count(prefix + text)
                if count <= limit:
                    return prefix + text
                length = min(len(text) - 1, len(text) * limit // count)
                text = shorten(source, length) if length > 0 else ""
        return source[:1]


def _best_text(material: Material, request: SummaryRequest) -> str:
    if material.candidates:
        best = max(material.candidates, key=lambda one: (gain(one, set()), -one.order))
        return best.line.text
    if material.actions:
        return material.actions[-1].text
    # Nothing but punctuation and symbols: they are all there is to keep.
    calls = (call for item in request.items for call in item.tool_calls)
    texts = (request.previous, *request.texts, *(item.text for item in request.items))
    parts = (*texts, *(part for call in calls for part in (call.arguments, call.name)))
    folded = (fold(encodable(text)) for text in parts)
    return next((text for text in folded if text), "")[:MAX_SENTENCE_CHARACTERS]


def _item_text(item: Item) -> str:
    if not item.tool_calls:
        return item.text
    return "\n".join([item.text, *(f"{call.name} {call.arguments}" for call in item.tool_calls)])


def _spoken_texts(request: SummaryRequest) -> list[str]:
    """What people and models wrote: the output of tools has no say in the language."""
    countable = (item.text for item in request.items if item.role != "tool")
    return [request.previous, *request.texts, *countable]

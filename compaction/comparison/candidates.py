"""What is compared: profiles by name, and the summariser that all of them have for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, UnknownModelError, get_model
from compaction.comparison.quick import QuickSummarizer
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.parameters import Profile
from compaction.engine.profile import PRESETS
from compaction.engine.types import (
    Clock,
    Summarizer,
    SummaryAnswer,
    SummaryRequest,
    TokenCounter,
)
from compaction.errors import CompactionError
from compaction.models import CompactionProfile
from compaction.profiles import usable_profile
from compaction.summaries.summarizer import ModelSummarizer

EMBEDDED = "embedded"
# What a model's instruction takes besides the messages, generously.
PROMPT_TOKENS = 500
MOST_PROFILES = 20
# Messages of a conversation that is replayed exactly as the application would go.
LONGEST_EXACT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProfile:
    """A profile that is compared; with a `problem` it is not, and that sentence says why."""

    name: str
    parameters: Profile
    problem: str = ""


def candidates_of(names: Sequence[str] = ()) -> list[ComparedProfile]:
    """Return the profiles of these names, or all presets, as they are stored now.

    Raises CompactionError with the names that exist.
    """
    wanted = list(dict.fromkeys(names)) or list(PRESETS)
    rows = CompactionProfile.objects.filter(is_current=True, name__in=wanted)
    stored = {row.name: row for row in rows}
    unknown = [name for name in wanted if name not in stored and name not in PRESETS]
    if unknown:
        raise CompactionError(
            f"There is no profile {unknown[0]!r}. Profiles: {', '.join(profile_names())}."
        )
    if len(wanted) > MOST_PROFILES:
        raise CompactionError(
            f"{len(wanted)} profiles were named; {MOST_PROFILES} can be compared at once."
        )
    found = []
    for name in wanted:
        if name not in stored:
            found.append(ComparedProfile(name=name, parameters=PRESETS[name]))
            continue
        usable = usable_profile(stored[name])
        found.append(
            ComparedProfile(name=name, parameters=usable.parameters, problem=usable.problem)
        )
    return found


def profile_names() -> list[str]:
    """Return the names of all profiles that can be compared, presets first."""
    current = CompactionProfile.objects.filter(is_current=True).order_by("name")
    return list(dict.fromkeys([*PRESETS, *current.values_list("name", flat=True)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSummariser:
    """Who summarises in a comparison: chosen sentences, or the model, or nobody but its price.

    With `is_estimate` no model is asked: sentences are chosen in the model's window, and each call
    costs what the model's would at most.
    """

    model: ModelConfig | None = None
    is_estimate: bool = False

    @classmethod
    def of(cls, name: str, *, is_estimate: bool = False) -> ComparedSummariser:
        """Return the one of a name, `embedded` or a model's alias; raise CompactionError."""
        if name == EMBEDDED:
            return cls()
        try:
            model = get_model(name)
        except UnknownModelError as error:
            raise CompactionError(f"{error} Or say {EMBEDDED!r}.") from error
        if model.is_embedded:
            return cls()
        return cls(model=with_learned_limits(model), is_estimate=is_estimate)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.model.alias if self.model else EMBEDDED

    @property
    def asks_model(self) -> bool:
        """Whether calls go out, and cost something."""
        return self.model is not None and not self.is_estimate

    @property
    def clock(self) -> Clock:
        """What measures its calls: sentences are chosen at once, as it were."""
        return time.monotonic if self.asks_model else _no_time

    def window_for(self, own: ModelConfig) -> int:
        """Return the window of whoever summarises a conversation of a model."""
        return (self.model or own).context_window

    def summarizer(
        self, own: ModelConfig, profile: Profile, *, messages: int, counter: TokenCounter
    ) -> Summarizer:
        """Return the summariser for a conversation of a model with so many messages."""
        if self.model is None:
            window = own.context_window if own.is_embedded else None
            if profile.summariser == "extractive":
                window = None
            kind = QuickSummarizer if is_long(messages) else ExtractiveSummarizer
            return kind(counter=counter, window=window)
        if self.is_estimate:
            return PricedSummarizer(self.model)
        return ModelSummarizer(model=self.model, temperature=profile.temperature)


def is_long(messages: int) -> bool:
    """Whether a conversation is so long that its summaries choose from less (QuickSummarizer)."""
    return messages > LONGEST_EXACT


class PricedSummarizer(QuickSummarizer):
    """Chooses sentences in a model's window, and says what the model's calls would cost."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(counter=model.counter, window=model.context_window)
        self._model = model

    def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        """Return chosen sentences, with the tokens and the price of a model's call."""
        answer = super().summarize(request)
        tokens = {
            "prompt_tokens": answer.input_tokens + PROMPT_TOKENS,
            "completion_tokens": request.target_tokens,
        }
        return replace(answer, output_tokens=request.target_tokens, cost=self._model.cost(tokens))


def _no_time() -> float:
    return 0.0

"""Reading a recovery: its steps in order, what they were measured by, and how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from chatapp import formatting
from chatapp.incidents import code_words
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.models import Session
from compaction import vocabulary
from compaction.models import RecoveryStep

RecoveryAction, Outcome = RecoveryStep.Action, RecoveryStep.Outcome
THROUGH, GAVE_UP, OPEN = "through", "gave_up", "open"
# What the numbers of an error count; everything else counts tokens.
UNITS = {
    ErrorKind.TOO_MANY_MESSAGES.value: "messages",
    ErrorKind.MESSAGE_TOO_LONG.value: "characters",
    ErrorKind.BODY_TOO_LARGE.value: "bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecovery:
    """The steps of one turn. `limit` is the most tokens that were known to be allowed.

    It is what the server named, or else the window that the settings say today; None is unknown.
    """

    steps: tuple[RecoveryStep, ...]
    limit: int | None
    is_named: bool

    @property
    def last(self) -> RecoveryStep:
        """The step it ended with."""
        return self.steps[-1]

    @property
    def end(self) -> str:
        """How it ended: a refusal after a step would have made one more."""
        if self.last.action == RecoveryAction.GIVE_UP:
            return GAVE_UP
        return THROUGH if self.last.outcome == Outcome.SMALLER else OPEN

    @property
    def left_out(self) -> bool:
        """Whether what went through lacks a part of the conversation."""
        return self.last.action == RecoveryAction.HALVE and self.last.outcome == Outcome.SMALLER

    @property
    def tried(self) -> list[RecoveryStep]:
        """The steps that tried something."""
        return [step for step in self.steps if step.action != RecoveryAction.GIVE_UP]

    @property
    def largest(self) -> int:
        """The tokens of the largest request."""
        return max(max(step.tokens_before, step.tokens_after) for step in self.steps)


def recoveries_of(session: Session, ids: Iterable[UUID]) -> Mapping[UUID, TurnRecovery]:
    """Return recoveries by their ids; one query for all of them."""
    found: dict[UUID, list[RecoveryStep]] = defaultdict(list)
    rows = RecoveryStep.objects.filter(recovery__in=ids)
    for step in rows.order_by("recovery", "order"):
        found[step.recovery].append(step)
    window = _window_of(session)
    return {key: _recovery(steps, window) for key, steps in found.items()}


def _recovery(steps: list[RecoveryStep], window: int | None) -> TurnRecovery:
    named = [step.allowed for step in steps if step.allowed and step.error_kind not in UNITS]
    limit = named[-1] if named else window
    return TurnRecovery(steps=tuple(steps), limit=limit, is_named=bool(named))


def _window_of(session: Session) -> int | None:
    try:
        return get_model(session.model).context_window
    except UnknownModelError:
        return None


# --- in words -------------------------------------------------------------------------------------


def title_of(recovery: TurnRecovery) -> str:
    """Return what happened, for a heading."""
    what = code_words(recovery.steps[0].error_kind)
    count = len(recovery.tried)
    steps = formatting.plural(count, "step")
    if recovery.end == GAVE_UP:
        return f"{what}: gave up after {steps}" if count else f"{what}: gave up"
    return f"{what}: went through after {steps}" if recovery.end == THROUGH else f"{what}: {steps}"


def tone_of(recovery: TurnRecovery) -> str:
    """Return the tone of a badge: amber where the answer was given, but not for all that was said.

    A turn of this kind went through, and its answer knows less than its reader thinks.
    """
    if recovery.end == GAVE_UP:
        return "bad"
    return "good" if recovery.end == THROUGH and not recovery.left_out else "busy"


def end_words(recovery: TurnRecovery, *, texts: bool = True) -> str:
    """Return how it ended, as a sentence; what the user was told only as `texts`."""
    if recovery.end == GAVE_UP:
        return (recovery.last.text if texts else "") or vocabulary.ACTION_MEANINGS["give_up"]
    if recovery.end == THROUGH:
        through = (
            f"Went through: the last request, with {recovery.last.tokens_after:,} tokens, was not "
            "refused as too large again."
        )
        without = " It went without a part of the conversation, and so did the answer."
        return through + (without if recovery.left_out else "")
    return "The end is not known: the turn goes on, or its process stopped."


def actions_words(recovery: TurnRecovery) -> str:
    """Return what was tried, in order, with what came of each."""
    said = [
        f"{action_words(step)} ({vocabulary.RECOVERY_OUTCOMES[step.outcome]})"
        for step in recovery.tried
    ]
    return f"Tried: {', '.join(said)}." if said else "There was nothing that could be tried."


def action_words(step: RecoveryStep) -> str:
    """Return what was tried."""
    return vocabulary.ACTIONS.get(step.action, step.action)


def outcome_words(step: RecoveryStep) -> str:
    """Return what came of a step; giving up has no outcome of its own."""
    return (
        ""
        if step.action == RecoveryAction.GIVE_UP
        else vocabulary.RECOVERY_OUTCOMES.get(step.outcome, step.outcome)
    )


def amount_words(step: RecoveryStep) -> str:
    """Return how much a step did; empty where tokens say it all."""
    if step.action == RecoveryAction.TRUNCATE and step.results_cut:
        results = formatting.plural(step.results_cut, "result")
        return f"{results}, {step.characters_cut:,} characters less"
    if step.action == RecoveryAction.HALVE and step.groups is not None:
        return f"the newest {formatting.plural(step.groups, 'group')} sent"
    return ""


def refusal_words(step: RecoveryStep) -> str:
    """Return why the request before a step was refused, with the server's numbers."""
    unit = UNITS.get(step.error_kind, "tokens")
    numbers = [
        f"{formatting.number(value)} {word}"
        for value, word in ((step.observed, "counted"), (step.allowed, "allowed"))
        if value is not None
    ]
    what = code_words(step.error_kind)
    return f"{what} ({unit}: {', '.join(numbers)})" if numbers else what

"""Reading a recovery: its steps in order, what they were measured by, and how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from chatapp import formatting
from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.models import Session
from chatapp.vocabulary import code_words
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
class Climb:
    """The steps of one turn. `limit` is the most tokens that were known to be allowed.

    It is what the server named, or else the window that the settings say today; None is unknown.
    """

    recovery_steps: tuple[RecoveryStep, ...]
    limit: int | None
    is_named: bool

    @property
    def last(self) -> RecoveryStep:
        """The step it ended with."""
        return self.recovery_steps[-1]

    @property
    def end(self) -> str:
        """How it ended: a refusal after a step would have made one more."""
        if self.last.action == RecoveryAction.GIVE_UP:
            return GAVE_UP
        return THROUGH if self.last.outcome == Outcome.SMALLER else OPEN

    @property
    def tried(self) -> list[RecoveryStep]:
        """The steps that tried something."""
        return [
            recovery_step
            for recovery_step in self.recovery_steps
            if recovery_step.action != RecoveryAction.GIVE_UP
        ]

    @property
    def largest(self) -> int:
        """The tokens of the largest request."""
        return max(
            max(recovery_step.tokens_before, recovery_step.tokens_after)
            for recovery_step in self.recovery_steps
        )


def climbs_of(session: Session, recoveries: Iterable[UUID]) -> Mapping[UUID, Climb]:
    """Return recoveries by their ids; one query for all of them."""
    found: dict[UUID, list[RecoveryStep]] = defaultdict(list)
    rows = RecoveryStep.objects.filter(recovery__in=recoveries)
    for recovery_step in rows.order_by("recovery", "order"):
        found[recovery_step.recovery].append(recovery_step)
    window = _window_of(session)
    return {key: _recover(recovery_steps, window) for key, recovery_steps in found.items()}


def _recover(recovery_steps: list[RecoveryStep], window: int | None) -> Climb:
    named = [
        recovery_step.allowed
        for recovery_step in recovery_steps
        if recovery_step.allowed and recovery_step.error_kind not in UNITS
    ]
    limit = named[-1] if named else window
    return Climb(recovery_steps=tuple(recovery_steps), limit=limit, is_named=bool(named))


def _window_of(session: Session) -> int | None:
    try:
        return get_model(session.model).context_window
    except UnknownModelError:
        return None


# --- in words -------------------------------------------------------------------------------------


def title_of(climb: Climb) -> str:
    """Return what happened, for a heading."""
    what = code_words(climb.recovery_steps[0].error_kind)
    count = len(climb.tried)
    recovery_steps = f"{count} rung{'' if count == 1 else 's'}"
    if climb.end == GAVE_UP:
        return f"{what}: gave up after {recovery_steps}" if count else f"{what}: gave up"
    return (
        f"{what}: went through after {recovery_steps}"
        if climb.end == THROUGH
        else f"{what}: {recovery_steps}"
    )


def end_words(climb: Climb) -> str:
    """Return how it ended, as a sentence."""
    if climb.end == GAVE_UP:
        return climb.last.text or vocabulary.RECOVERY_ACTION_MEANINGS["give_up"]
    if climb.end == THROUGH:
        return (
            f"Went through: the last request, with {climb.last.tokens_after:,} tokens, was not "
            "refused as too large again."
        )
    return "The end is not known: the turn goes on, or its process stopped."


def moves_words(climb: Climb) -> str:
    """Return what was tried, in order, with what came of each."""
    said = [
        f"{move_words(recovery_step)} ({vocabulary.RECOVERY_OUTCOMES[recovery_step.outcome]})"
        for recovery_step in climb.tried
    ]
    return f"Tried: {', '.join(said)}." if said else "There was nothing that could be tried."


def move_words(recovery_step: RecoveryStep) -> str:
    """Return what was tried."""
    return vocabulary.RECOVERY_ACTIONS.get(recovery_step.action, recovery_step.action)


def outcome_words(recovery_step: RecoveryStep) -> str:
    """Return what came of a step; giving up has no outcome of its own."""
    return (
        ""
        if recovery_step.action == RecoveryAction.GIVE_UP
        else vocabulary.RECOVERY_OUTCOMES.get(recovery_step.outcome, recovery_step.outcome)
    )


def amount_words(recovery_step: RecoveryStep) -> str:
    """Return how much a step did; empty where tokens say it all."""
    if recovery_step.action == RecoveryAction.TRUNCATE and recovery_step.results_cut:
        results = (
            f"{recovery_step.results_cut:,} result{'' if recovery_step.results_cut == 1 else 's'}"
        )
        return f"{results}, {recovery_step.characters_cut:,} characters less"
    if recovery_step.action == RecoveryAction.HALVE and recovery_step.groups is not None:
        return f"the newest {recovery_step.groups:,} group{'' if recovery_step.groups == 1 else 's'} sent"
    return ""


def refusal_words(recovery_step: RecoveryStep) -> str:
    """Return why the request before a step was refused, with the server's numbers."""
    unit = UNITS.get(recovery_step.error_kind, "tokens")
    numbers = [
        f"{formatting.number(value)} {word}"
        for value, word in ((recovery_step.observed, "counted"), (recovery_step.allowed, "allowed"))
        if value is not None
    ]
    what = code_words(recovery_step.error_kind)
    return f"{what} ({unit}: {', '.join(numbers)})" if numbers else what

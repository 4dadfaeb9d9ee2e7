"""Reading a ladder: its rungs in order, what they were measured by, and how it ended."""

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
from compaction.models import RecoveryRung

Move, Outcome = RecoveryRung.Move, RecoveryRung.Outcome
THROUGH, GAVE_UP, OPEN = "through", "gave_up", "open"
# What the numbers of an error count; everything else counts tokens.
UNITS = {
    ErrorKind.TOO_MANY_MESSAGES.value: "messages",
    ErrorKind.MESSAGE_TOO_LONG.value: "characters",
    ErrorKind.BODY_TOO_LARGE.value: "bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """The rungs of one turn. `limit` is the most tokens that were known to be allowed.

    It is what the server named, or else the window that the settings say today; None is unknown.
    """

    rungs: tuple[RecoveryRung, ...]
    limit: int | None
    is_named: bool

    @property
    def last(self) -> RecoveryRung:
        """The rung it ended with."""
        return self.rungs[-1]

    @property
    def end(self) -> str:
        """How it ended: a refusal after a rung would have made one more."""
        if self.last.move == Move.GIVE_UP:
            return GAVE_UP
        return THROUGH if self.last.outcome == Outcome.SMALLER else OPEN

    @property
    def tried(self) -> list[RecoveryRung]:
        """The rungs that tried something."""
        return [rung for rung in self.rungs if rung.move != Move.GIVE_UP]

    @property
    def largest(self) -> int:
        """The tokens of the largest request."""
        return max(max(rung.tokens_before, rung.tokens_after) for rung in self.rungs)


def climbs_of(session: Session, recoveries: Iterable[UUID]) -> Mapping[UUID, Climb]:
    """Return ladders by their ids; one query for all of them."""
    found: dict[UUID, list[RecoveryRung]] = defaultdict(list)
    rows = RecoveryRung.objects.filter(recovery__in=recoveries)
    for rung in rows.order_by("recovery", "order"):
        found[rung.recovery].append(rung)
    window = _window_of(session)
    return {key: _climb(rungs, window) for key, rungs in found.items()}


def _climb(rungs: list[RecoveryRung], window: int | None) -> Climb:
    named = [rung.allowed for rung in rungs if rung.allowed and rung.error_kind not in UNITS]
    limit = named[-1] if named else window
    return Climb(rungs=tuple(rungs), limit=limit, is_named=bool(named))


def _window_of(session: Session) -> int | None:
    try:
        return get_model(session.model).context_window
    except UnknownModelError:
        return None


# --- in words -------------------------------------------------------------------------------------


def title_of(climb: Climb) -> str:
    """Return what happened, for a heading."""
    what = code_words(climb.rungs[0].error_kind)
    count = len(climb.tried)
    rungs = f"{count} rung{'' if count == 1 else 's'}"
    if climb.end == GAVE_UP:
        return f"{what}: gave up after {rungs}" if count else f"{what}: gave up"
    return f"{what}: went through after {rungs}" if climb.end == THROUGH else f"{what}: {rungs}"


def end_words(climb: Climb) -> str:
    """Return how it ended, as a sentence."""
    if climb.end == GAVE_UP:
        return climb.last.text or vocabulary.MOVE_MEANINGS["give_up"]
    if climb.end == THROUGH:
        return (
            f"Went through: the last request, with {climb.last.tokens_after:,} tokens, was not "
            "refused as too large again."
        )
    return "The end is not known: the turn goes on, or its process stopped."


def moves_words(climb: Climb) -> str:
    """Return what was tried, in order, with what came of each."""
    said = [
        f"{move_words(rung)} ({vocabulary.RUNG_OUTCOMES[rung.outcome]})" for rung in climb.tried
    ]
    return f"Tried: {', '.join(said)}." if said else "There was nothing that could be tried."


def move_words(rung: RecoveryRung) -> str:
    """Return what was tried."""
    return vocabulary.MOVES.get(rung.move, rung.move)


def outcome_words(rung: RecoveryRung) -> str:
    """Return what came of a rung; giving up has no outcome of its own."""
    return (
        ""
        if rung.move == Move.GIVE_UP
        else vocabulary.RUNG_OUTCOMES.get(rung.outcome, rung.outcome)
    )


def amount_words(rung: RecoveryRung) -> str:
    """Return how much a rung did; empty where tokens say it all."""
    if rung.move == Move.TRUNCATE and rung.results_cut:
        results = f"{rung.results_cut:,} result{'' if rung.results_cut == 1 else 's'}"
        return f"{results}, {rung.characters_cut:,} characters less"
    if rung.move == Move.HALVE and rung.groups is not None:
        return f"the newest {rung.groups:,} group{'' if rung.groups == 1 else 's'} sent"
    return ""


def refusal_words(rung: RecoveryRung) -> str:
    """Return why the request before a rung was refused, with the server's numbers."""
    unit = UNITS.get(rung.error_kind, "tokens")
    numbers = [
        f"{formatting.number(value)} {word}"
        for value, word in ((rung.observed, "counted"), (rung.allowed, "allowed"))
        if value is not None
    ]
    what = code_words(rung.error_kind)
    return f"{what} ({unit}: {', '.join(numbers)})" if numbers else what

"""Looking before sending: a request that cannot fit is made smaller first (B15.3)."""

from __future__ import annotations

import math

from chatapp.context.assembly import Context
from compaction.engine.tool_results import Route, precheck
from compaction.engine.types import Decision
from compaction.services.sending import Cut, allotted, kept_of, sizes_as_sent
from compaction.services.situation import Situation

# The reason of a run that comes before a request that would be refused.
REASON = "precheck"
_TOGETHER = Cut(results_together=True)


def sendable(situation: Situation, *, run_id: str | None = None) -> Context:
    """Return what the next request sends, its tool results shortened where that makes it fit.

    What only a compaction could help goes out as it is: the server has the last word.
    """
    context = situation.context(run_id=run_id)
    if route_of(situation, context) in (Route.TRUNCATE, Route.COMPACT_THEN_TRUNCATE):
        return situation.context(run_id=run_id, cut=_TOGETHER)
    return context


def foreseen(situation: Situation) -> Decision | None:
    """Return the decision to compact before a request that would be refused, or None."""
    route = route_of(situation, situation.context())
    if route not in (Route.COMPACT, Route.COMPACT_THEN_TRUNCATE):
        return None
    return situation.unless_prevented(Decision(reason=REASON))


def route_of(situation: Situation, context: Context) -> Route:
    """Return what would make a context fit, by our own count; FITS also where nobody can tell."""
    profile, account = situation.profile, context.account
    if not (profile.enabled and profile.precheck_margin) or account.window <= 0:
        return Route.FITS

    def ask(reducible: int) -> Route:
        return precheck(
            tokens=math.ceil(account.used * situation.model.scale),
            window=account.window,
            reserve=account.reserve,
            reducible_chars=reducible,
            margin=profile.precheck_margin,
        )

    return ask(0) if ask(0) is Route.FITS else ask(_reducible(situation))


def _reducible(situation: Situation) -> int:
    """Return the characters that tool results lose when they share what one may have."""
    _, kept = kept_of(situation)
    now = sizes_as_sent(situation, kept)
    targets = allotted(situation, kept, _TOGETHER)
    return sum(max(0, now[row.pk] - limit) for row, limit in targets)

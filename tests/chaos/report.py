"""What is printed: a line of progress, and at the end what was done and what does not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from compaction.models import CompactionRun, SessionSummary
from tests.chaos.checks import Done
from tests.chaos.ledger import Ledger
from tests.chaos.mischief import Mischief
from tests.chaos.model import UnsteadyModel
from tests.chaos.stored import runs_by

# Ends of runs whose worker died or was told to go.
INTERRUPTED = ("interrupted", "stopped")
MOST_SHOWN = 60


def progress(seconds: float, ledger: Ledger, mischief: Mischief) -> str:
    """Return a line about how far it is."""
    sent = list(ledger.acknowledged())
    messages = sum(len(one.messages) for one in sent)
    turns = sum(one.is_turn for one in sent)
    runs = ", ".join(f"{count} {status}" for status, count in sorted(runs_by("status").items()))
    return (
        f"{seconds:5.0f} s  {messages} messages, {turns} turns, {len(ledger.waiting())} waiting; "
        f"runs: {runs or 'none'}; kills: {mischief.kills}"
    )


def done(ledger: Ledger, mischief: Mischief) -> Done:
    """Return what happened, in numbers."""
    sent = list(ledger.acknowledged())
    return Done(
        acknowledged=len(sent),
        turns=sum(one.is_turn for one in sent),
        succeeded=runs_by("status")["succeeded"],
        summaries=SessionSummary.objects.filter(status=SessionSummary.Status.ACTIVE).count(),
        kills=mischief.kills,
        interrupted=sum(runs_by("error_code")[code] for code in INTERRUPTED),
        restarted=CompactionRun.objects.filter(restarts__gt=0).count()
        + runs_by("error_code")["stopped"],
        twice=mischief.done["deliver_twice"],
        database_cuts=mischief.done["cut_database"],
        redis_cuts=mischief.done["cut_redis"],
        bursts=mischief.done["fail_burst"],
    )


def table(ledger: Ledger, mischief: Mischief, model: UnsteadyModel) -> Iterator[str]:
    """Yield the lines of what was done."""
    sent = list(ledger.acknowledged())
    happened = done(ledger, mischief)
    kinds = Counter("streamed turns" if one.is_streamed else "turns" for one in sent if one.is_turn)
    numbers = {
        "messages acknowledged": sum(len(one.messages) for one in sent),
        **kinds,
        "requests repeated": sum(one.attempts > 1 for one in sent),
        "active summaries": happened.summaries,
        "requests to the model": len(model.requests),
        "of them that left something out": sum(
            bool(request.left_out) for request in model.requests
        ),
    }
    yield from _lines("written", numbers)
    yield from _lines("runs", runs_by("status"))
    yield from _lines("their reasons", runs_by("reason"))
    yield from _lines("why they ended without a summary", runs_by("error_code", error_code__gt=""))
    yield from _lines("runs started again", {"after a death or a stop": happened.restarted})
    yield from _lines("mischief", mischief.done)
    yield from _lines("answers of the summariser", model.replies)


def _lines(title: str, numbers: dict[str, int]) -> Iterator[str]:
    yield f"\n{title}"
    for name, number in sorted(numbers.items()):
        if number:
            yield f"  {name:<44}{number:>8,}"


def verdict(found: Sequence[str]) -> Iterator[str]:
    """Yield the last lines: that all holds, or what does not."""
    if not found:
        yield "\nAll invariants hold."
        return
    yield f"\n{len(found)} violation(s):"
    yield from (f"  {sentence}" for sentence in found[:MOST_SHOWN])
    if len(found) > MOST_SHOWN:
        yield f"  … and {len(found) - MOST_SHOWN} more"

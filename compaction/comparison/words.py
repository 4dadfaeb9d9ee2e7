"""How the figures of a comparison are written, and what is to be known about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chatapp import formatting
from compaction.comparison.candidates import LONGEST_EXACT
from compaction.engine.replay.survival import IDENTIFIERS, MARKERS, NUMBERS, PATHS

Figures = Mapping[str, Any]


def _number(name: str) -> Callable[[Figures], str]:
    return lambda row: formatting.number(row[name])


def _held(kind: str) -> Callable[[Figures], str]:
    def shown(row: Figures) -> str:
        one = row["survival"].get(kind)
        if not one or one["share"] is None:
            return "—"
        return f"{100 * one['share']:.0f} % of {one['named']:,}"

    return shown


def _waited(row: Figures) -> str:
    # Chosen sentences and estimates take no time that is worth a figure.
    return f"{row['seconds_waited']:,.1f} s" if row["seconds_waited"] else "—"


FIGURES: Mapping[str, Callable[[Figures], str]] = {
    "Requests": _number("turns"),
    "Compactions": _number("compactions"),
    "of these before a request": _number("inline"),
    "Failed attempts": _number("failures"),
    "Summarising calls": _number("calls"),
    "Tokens sent": _number("tokens_sent"),
    "Largest request, tokens": _number("largest_request"),
    "Worst use of the window": lambda row: f"{100 * row['worst_use']:.0f} %",
    "Requests larger than the window": _number("too_large"),
    "Tokens summarised": _number("tokens_summarised"),
    "Tokens read by the summariser": _number("tokens_read"),
    "Cost of summarising": lambda row: formatting.money(row["summarising_cost"]),
    "Cost of what is sent": lambda row: formatting.money(row["sending_cost"]),
    "Requests that waited": _number("waits"),
    "Seconds waited": _waited,
    "Identifiers still sent": _held(IDENTIFIERS),
    "Markers still sent": _held(MARKERS),
    "Numbers and dates still sent": _held(NUMBERS),
    "Paths and addresses still sent": _held(PATHS),
}
"""The figures of a profile in the order in which they are shown."""


def notes_of(found: Mapping[str, Any]) -> list[str]:
    """Return what a reader has to know, as sentences."""
    notes = [
        "Sizes are counted, not reported by a server. What a worker does counts as done before the "
        "next message; a request that is larger than the window would be refused and recovered.",
        "“Still sent” is of the request that would follow the whole conversation: the part of all "
        "that its messages name. Costs need prices of the models.",
    ]
    if long := found.get("approximated"):
        notes.append(
            f"{formatting.plural(long, 'conversation')} of more than {LONGEST_EXACT:,} messages: "
            "there summaries choose from what is new alone. They are about as long as they would "
            "be, and say less of what was said long ago; compactions may come some messages "
            "earlier or later, and less is still sent."
        )
    if found["asks_model"]:
        notes.append("Seconds are those of the model's calls that requests waited for.")
    elif found["is_estimate"]:
        notes.append(
            f"Calls of {found['model']} are estimated: as if its summaries were chosen sentences, "
            "each call paid for its input and for all that was asked for. No time is known."
        )
    else:
        notes.append("Sentences are chosen in no time: seconds waited count calls of models only.")
    return notes


def price_of(found: Mapping[str, Any]) -> str:
    """Return what a comparison with a model would take, as a sentence."""
    rows = found["profiles"]
    calls = sum(row["calls"] for row in rows)
    read, written = (sum(row[name] for row in rows) for name in ("tokens_read", "tokens_written"))
    cost = sum(row["summarising_cost"] for row in rows)
    price = formatting.money(cost) if cost else "nothing that is known: the model has no prices"
    return (
        f"{found['model']} would be called about {formatting.plural(calls, 'time')}, read "
        f"{formatting.plural(read, 'token')} and write {written:,} at most. That costs {price}."
    )

"""What making a very long branch's summaries again would take: a walk over a few numbers of each.

A branch of a million messages has twenty thousand summaries. Their texts are read by nobody here:
of what one call can read, the sums of a summary's two ends and the size of the summary before it
say all. The others, and they alone, are read and priced as those of a short branch are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db.models import (
    Case,
    CharField,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)

from chatapp.models import Message
from chatapp.selectors import without_pinned_system
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.types import Item, SummaryJob
from compaction.models import SessionSummary
from compaction.runs.redo_estimates import (
    COUNTED_TEXTS,
    Estimate,
    Terms,
    is_dense,
    priced,
    priced_each,
    terms_of,
)
from compaction.selectors import summaries_of

WALKED_AT_ONCE = 2_000
# Summaries whose rows are in memory at once, with those that they continue.
READ_AT_ONCE = 100


@dataclass(slots=True, kw_only=True)
class RedoSums:
    """Sums of estimates over so many summaries."""

    summaries: int = 0
    messages: int = 0
    tokens: int = 0
    calls: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, estimates: Iterable[Estimate]) -> RedoSums:
        """Return the sums of some estimates."""
        sums = cls()
        for one in estimates:
            sums.add(one.messages, one.tokens, one.calls, one.cost)
        return sums

    def add(self, messages: int, tokens: int, calls: int, cost: float) -> None:
        """Add one summary."""
        self.summaries += 1
        self.messages += messages
        self.tokens += tokens
        self.calls += calls
        self.cost += cost


class _Numbers(NamedTuple):
    """A summary: `begin` and `end` are the sums before its first and through its last message."""

    covers_from: int
    covers_through: int
    messages: int
    size: int
    is_wanted: int
    # Of a fallback digest, or of a hook: what continues it is found by its rows.
    is_odd: int
    begin: int | None
    end: int | None
    # Of the message behind it; asked for where turns are split.
    role: str | None


def sums_of_redos(snapshot: BranchSnapshot, wanted: Q) -> RedoSums | None:
    """Return what making those of a branch's summaries again would take that a condition chooses.

    None where that has to be said summary by summary (estimate_redos): they are few, the branch is
    a fork, fallback digests or texts of hooks stand among them, or a plug-in makes them.
    Raises CompactionError where the strategy cannot say.
    """
    terms = terms_of(snapshot, {})
    rows = summaries_of(snapshot.branch)
    chosen = rows.filter(wanted).order_by()
    if snapshot.branch.parent_id is not None or not terms.is_ours:
        return None
    if not chosen[COUNTED_TEXTS : COUNTED_TEXTS + 1].exists():
        return None
    walk = _Walk(terms=terms, one_call=_one_call(terms))
    if not walk.take(_numbers(snapshot, rows, wanted)):
        return None
    if walk.sums.summaries + len(walk.left) <= COUNTED_TEXTS:
        return None
    for start in range(0, len(walk.left), READ_AT_ONCE):
        for one in _read(snapshot, rows, walk.left[start : start + READ_AT_ONCE]):
            walk.sums.add(one.messages, one.tokens, one.calls, one.cost)
    return walk.sums


def _one_call(terms: Terms) -> Estimate:
    """Return what the strategy says of the least that one call reads."""
    job = SummaryJob(items=(Item(id=None, role="user", tokens=0),), counter=terms.counter)
    profile = terms.snapshot.summary_profile
    return priced(terms.strategy, job, profile, terms.model, terms.limit, 1, 0)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """From the newest summary to the oldest; `left` are the ends of those that have to be read.

    Each stands there with the end of the one before it, which it continues; 0 behind none.
    """

    terms: Terms
    one_call: Estimate
    sums: RedoSums = field(default_factory=RedoSums)
    left: list[tuple[int, int]] = field(default_factory=list)

    def take(self, rows: Iterable[_Numbers]) -> bool:
        """Add up all of them; False where one says that numbers are not enough."""
        newer: _Numbers | None = None
        for row in rows:
            if newer is not None and row.covers_through >= newer.covers_from:
                # It says nothing new (selectors.without_overlaps).
                continue
            if row.is_odd:
                return False
            if newer is not None and newer.is_wanted:
                self._add(newer, row)
            newer = row
        if newer is not None and newer.is_wanted:
            self.left.append((newer.covers_through, 0))
        return True

    def _add(self, row: _Numbers, before: _Numbers) -> None:
        limit, calls = self.terms.limit, self.one_call.calls
        parts = row.role is not None and row.role != Message.Role.USER
        tokens = 0
        if row.begin is not None and row.end is not None:
            tokens = row.end - row.begin
        is_known = row.end is not None and is_dense(*row[:3]) and row.messages and not parts
        if not is_known or (limit is not None and before.size + tokens > limit):
            self.left.append((row.covers_through, before.covers_through))
            return
        read = before.size + tokens if calls else 0
        cost = self.one_call.cost + self.terms.model.price(prompt=read, completion=0)
        self.sums.add(row.messages, tokens, calls, cost)


def _numbers(
    snapshot: BranchSnapshot, rows: QuerySet[SessionSummary], wanted: Q
) -> Iterator[_Numbers]:
    """Yield the numbers of a branch's summaries, the newest first; few are in memory at once."""
    own = Message.objects.filter(branch=OuterRef("branch"), kind__in=Message.SPOKEN)
    first = own.filter(position=OuterRef("covers_from"))
    last = own.filter(position=OuterRef("covers_through"))
    role: Subquery | Value = Value(None, output_field=CharField())
    if snapshot.profile.split_turns:
        behind = own.filter(position__gt=OuterRef("covers_through")).order_by("position")
        role = Subquery(without_pinned_system(behind).values("role")[:1])
    found = rows.values_list(
        "covers_from",
        "covers_through",
        "message_count",
        "summary_tokens",
        _flag(wanted),
        _flag(Q(is_digest=True) | Q(from_hook=True)),
        Subquery(first.values(sum=F("tokens_through") - F("tokens"))),
        Subquery(last.values("tokens_through")),
        role,
    )
    return map(_Numbers._make, found.iterator(chunk_size=WALKED_AT_ONCE))


def _flag(where: Q) -> Case:
    """Return a condition as 1 or 0: a truth value would be converted row by row on SQLite."""
    return Case(When(where, then=1), default=0, output_field=IntegerField())


def _read(
    snapshot: BranchSnapshot, rows: QuerySet[SessionSummary], ends: Sequence[tuple[int, int]]
) -> Iterator[Estimate]:
    """Yield the estimates of the summaries with these ends, each read with the one before it."""
    asked = {end for pair in ends for end in pair}
    found = rows.filter(covers_through__in=asked).select_related("session", "branch")
    by_end = {row.covers_through: row for row in found}
    read = [by_end[end] for end, _ in ends]
    before = {by_end[end].pk: [by_end[older]] for end, older in ends if older}
    known = {row.summary_text: row.summary_tokens for earlier in before.values() for row in earlier}
    yield from priced_each(read, terms_of(snapshot, known), before)

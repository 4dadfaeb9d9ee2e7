"""Budgets of an hour: what the summariser's model calls of a session and of its owner may come to.

Before a run, `overspent` says whether a limit is reached and when it no longer will be. Only calls
of a language model count; choosing sentences costs nothing. An owner's memory runs count for the
owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.db.models import (
    Aggregate,
    BigIntegerField,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, JSONObject
from django.utils import timezone

from chatapp.formatting import when_utc
from chatapp.models import Session
from compaction.conf import compaction_settings
from compaction.models import CompactionRun, MemoryRun

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Model calls of summarising and their tokens, in and out."""

    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """A limit that is reached: a sentence for the operator, and when it no longer is.

    From `frees_at` on, enough of the hour's spending is older than an hour.
    """

    sentence: str
    frees_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one run of the last hour has spent, and whose it was."""

    session: Spent
    owner: Spent
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """One of the four limits of the settings."""

    whose: Literal["session", "owner"]
    unit: Literal["calls", "tokens"]

    @property
    def key(self) -> str:
        """The setting's name in lower case."""
        return f"{self.whose}_{self.unit}_per_hour"

    @property
    def limit(self) -> int:
        """What may be spent in an hour; 0 for no limit."""
        return int(getattr(compaction_settings, self.key))

    def of(self, session: Spent, owner: Spent) -> int:
        """Return what counts against this limit."""
        return int(getattr(session if self.whose == "session" else owner, self.unit))


_BUDGETS = (
    _Budget(whose="session", unit="calls"),
    _Budget(whose="session", unit="tokens"),
    _Budget(whose="owner", unit="calls"),
    _Budget(whose="owner", unit="tokens"),
)


def overspent(session: Session, *, now: datetime | None = None) -> Overspent | None:
    """Return the reached limit that holds longest; None while all of them leave something.

    One query while nothing is reached, none where no limit is set. What is reached is told after
    one more, which reads the hour's runs.
    """
    limited = _limited()
    if not limited:
        return None
    now = now or timezone.now()
    whose = _Whose(session.pk, session.owner_id, _counts_owners(limited))
    sums = _sums_of(_spent_since(now - HOUR).aggregate(**_columns(whose, now - HOUR)))
    reached = [budget for budget in limited if budget.of(*sums) >= budget.limit]
    if not reached:
        return None
    runs = _spent_since(now - HOUR).filter(whose.whole)
    memories = _memory_runs(whose, now - HOUR)
    read = sorted([*_read(runs, session), *_read_memory_runs(memories)], key=_began)
    ends = {budget: _frees_at(budget, read, now=now) for budget in reached}
    last = max(reached, key=lambda budget: ends[budget])
    return Overspent(
        sentence=_sentence(last, session, last.of(*sums), ends[last]), frees_at=ends[last]
    )


def whose_limits(session: Session) -> dict[str, Any] | None:
    """Return what `column_of_spent` is asked for; None where no limit is set."""
    limited = _limited()
    if not limited:
        return None
    owner = session.owner_id if _counts_owners(limited) else None
    return {"session": session.pk, "owner": owner, "since": timezone.now() - HOUR}


def column_of_spent(*, session: UUID, owner: Any, since: datetime) -> Combinable:
    """Return what was spent since then as one column of whatever is read (may_be_overspent).

    Without an owner, no owner has a limit.
    """
    # Of one group, all of them: a sum alone cannot stand in a subquery.
    one = _spent_since(since).order_by().annotate(one=Value(1)).values("one")
    columns = _columns(_Whose(session, owner, owner is not None), since)
    return Subquery(one.annotate(sums=JSONObject(**columns)).values("sums"))


def may_be_overspent(spent: dict[str, int | None] | None) -> bool:
    """Whether a limit is reached by what stood in the column: overspent tells of it."""
    sums = _sums_of(spent or {})
    return any(budget.of(*sums) >= budget.limit for budget in _limited())


def owner_limits() -> dict[str, int]:
    """Return what an owner may spend in an hour, by the unit; 0 for no limit."""
    return {budget.unit: budget.limit for budget in _BUDGETS if budget.whose == "owner"}


def spent_by_owner(owner_id: Any, *, now: datetime | None = None) -> Spent:
    """Return what the runs and the memory runs of an owner have spent within the last hour."""
    since = (now or timezone.now()) - HOUR
    sums = {"calls": Sum("model_calls"), "tokens": Sum("spent_tokens")}
    runs = CompactionRun.objects.filter(spent_tokens__gt=0, started_at__gt=since)
    memories = MemoryRun.objects.filter(spent_tokens__gt=0, started_at__gt=since)
    found = [
        runs.filter(session__owner_id=owner_id).aggregate(**sums),
        memories.filter(owner_id=owner_id).aggregate(**sums),
    ]
    return Spent(
        calls=sum(each["calls"] or 0 for each in found),
        tokens=sum(each["tokens"] or 0 for each in found),
    )


def _limited() -> list[_Budget]:
    return [budget for budget in _BUDGETS if budget.limit > 0]


class _Whose(NamedTuple):
    """The session that is looked at, and whether the limits are its owner's, too."""

    session: UUID
    owner: Any
    counts_owners: bool

    @property
    def whole(self) -> Q:
        """Whose runs are looked at: the owner's, or the session's where no owner has a limit."""
        return Q(session__owner_id=self.owner) if self.counts_owners else Q(session_id=self.session)


def _spent_since(since: datetime) -> QuerySet[CompactionRun]:
    """Return all runs since then that cost something; the index `run_spent`."""
    return CompactionRun.objects.filter(spent_tokens__gt=0, started_at__gt=since)


def _counts_owners(limited: Iterable[_Budget]) -> bool:
    return any(budget.whose == "owner" for budget in limited)


def _memory_runs(whose: _Whose, since: datetime) -> QuerySet[MemoryRun]:
    """Return the hour's memory runs of the session's owner, where an owner has a limit; the index
    `memory_run_spent`.
    """
    if not whose.counts_owners:
        return MemoryRun.objects.none()
    spent = MemoryRun.objects.filter(spent_tokens__gt=0, started_at__gt=since)
    return spent.filter(owner_id=whose.owner)


def _columns(whose: _Whose, since: datetime) -> dict[str, Aggregate | Combinable]:
    """Return the sums of what the session spent of the hour's runs, and of what the whole did.

    Whose runs they are stands in the sums and not in WHERE: there SQLite would read every run that
    the owner's sessions ever had. So both databases read the partial index `run_spent`: the hour's
    runs that cost something, however old the sessions are and however many the owner has.
    """
    own, whole = Q(session_id=whose.session), whose.whole
    memories = _memory_runs(whose, since)
    return {
        "session_calls": Sum("model_calls", filter=own),
        "session_tokens": Sum("spent_tokens", filter=own),
        "calls": _with(memories, "model_calls", whole),
        "tokens": _with(memories, "spent_tokens", whole),
    }


def _sums_of(columns: Mapping[str, int | None]) -> tuple[Spent, Spent]:
    """Return what the session spent, and what the whole did, of the columns."""
    return (
        Spent(calls=columns.get("session_calls") or 0, tokens=columns.get("session_tokens") or 0),
        Spent(calls=columns.get("calls") or 0, tokens=columns.get("tokens") or 0),
    )


def _with(memories: QuerySet[MemoryRun], column: str, whole: Q) -> Combinable:
    """Return the sum of a column over the runs of the whole and over the memory runs."""
    of_runs = Coalesce(Sum(column, filter=whole), 0, output_field=BigIntegerField())
    if memories.query.is_empty():
        return of_runs
    totals = memories.order_by().values("owner").annotate(total=Sum(column)).values("total")
    return of_runs + Coalesce(Subquery(totals), 0, output_field=BigIntegerField())


def _read_memory_runs(memories: QuerySet[MemoryRun]) -> Iterator[_Run]:
    """Return the memory runs one by one; they are no session's."""
    for started_at, calls, tokens in memories.values_list(
        "started_at", "model_calls", "spent_tokens"
    ):
        if started_at is not None:
            spent = Spent(calls=calls, tokens=tokens)
            yield _Run(session=Spent(), owner=spent, started_at=started_at)


def _began(run: _Run) -> datetime:
    return run.started_at


def _read(runs: QuerySet[CompactionRun], session: Session) -> Iterator[_Run]:
    """Return the runs one by one, oldest first."""
    rows = runs.order_by("started_at", "pk").values_list(
        "started_at", "session_id", "model_calls", "spent_tokens"
    )
    for started_at, session_id, calls, tokens in rows:
        if started_at is not None:
            spent = Spent(calls=calls, tokens=tokens)
            own = spent if session_id == session.pk else Spent()
            yield _Run(session=own, owner=spent, started_at=started_at)


def _frees_at(budget: _Budget, runs: list[_Run], *, now: datetime) -> datetime:
    """Return when the runs that are younger than an hour by then come to less than the limit."""
    left = sum(budget.of(run.session, run.owner) for run in runs)
    frees_at = now
    for run in runs:
        if left < budget.limit:
            break
        left -= budget.of(run.session, run.owner)
        frees_at = run.started_at + HOUR
    return frees_at


def _sentence(budget: _Budget, session: Session, spent: int, frees_at: datetime) -> str:
    whose = "session" if budget.whose == "session" else f"owner ({session.owner.get_username()})"
    where = "this session" if budget.whose == "session" else "all sessions of this owner"
    unit = "model calls" if budget.unit == "calls" else "tokens"
    return (
        f"The budget of the {whose} is used up: summarising {where} took {spent:,} {unit} within "
        f"an hour, and the limit is {budget.limit:,}. Nothing was summarised. It goes on at "
        f"{when_utc(frees_at)}, or at once when "
        f"COMPACTION_{budget.key.upper()} is raised."
    )

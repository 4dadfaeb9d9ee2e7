"""Which of many sessions have to be examined one by one: a dozen statements for all of them.

Most sessions have no fault. A screening looks at a chunk of them with set-based statements, however
many branches they have, and names those in which something may be wrong or has to be told;
`examine` then says what it is. So findings are always those of `examine`, and a screening errs on
one side only: it may name a healthy session, and passes over no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Max, Min, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from chatapp.models import Branch, Message, Session
from compaction.doctor.calls import unpaired_branches
from compaction.doctor.lines import (
    HIGHEST,
    LINE_COLUMNS,
    LOWEST,
    BranchLine,
    Sums,
    breaks_in,
    sums_of,
)
from compaction.doctor.records import sessions_with_wrong_records
from compaction.doctor.summaries import times_disagree
from compaction.models import (
    CompactionRun,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
)
from compaction.selectors import NOTE

# Rows of one VALUES list: three parameters each, and SQLite takes 32,766.
POINTS_AT_ONCE = 5_000
Status = SessionSummary.Status
_SPOKEN = Message.SPOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What is known of some sessions: which may have a fault, and at which somebody works.

    Of the latter alone runs and leases have to be looked at: a queue with a backlog has many.
    """

    suspected: frozenset[UUID] = frozenset()
    at_work: frozenset[UUID] = frozenset()


def screen(session_ids: Sequence[UUID]) -> Screened:
    """Return those of the sessions that have to be looked at, by a dozen statements."""
    if not session_ids:
        return Screened()
    return _Screening(ids=list(session_ids)).found()


@dataclass(kw_only=True)
class _Screening:
    """One chunk of sessions; `suspected` are those of which something may have to be told."""

    ids: list[UUID]
    lines: dict[UUID, BranchLine] = field(default_factory=dict)
    suspected: set[UUID] = field(default_factory=set)
    at_work: set[UUID] = field(default_factory=set)
    # Of each branch's own active summaries: from where to where, and how many messages.
    active: dict[UUID, list[tuple[int, int, int]]] = field(default_factory=dict)
    sums: dict[tuple[UUID, int], Sums] = field(default_factory=dict)
    totals: dict[UUID, Sums] = field(default_factory=dict)
    heads: dict[UUID, int] = field(default_factory=dict)

    def found(self) -> Screened:
        rows = Branch.objects.filter(session__in=self.ids).values_list(*LINE_COLUMNS)
        self.lines = {row[0]: BranchLine(*row) for row in rows}
        self._look_at_work()
        self._look_at_places()
        self._look_at_sums()
        self._look_at_running_sums()
        self._look_at_summaries()
        self._look_at_hidden()
        self._look_at_versions()
        self._look_at_placeholders()
        self._look_at_branch_summaries()
        self.suspected |= sessions_with_wrong_records(self.ids)
        self._suspect_branches(unpaired_branches(self.ids))
        at_work = frozenset(self.at_work - self.suspected)
        return Screened(suspected=frozenset(self.suspected), at_work=at_work)

    # --- what works, what is active, where branches begin -----------------------------------------

    def _look_at_work(self) -> None:
        """Suspect sessions without an active branch; note unfinished runs, leases that are over."""
        unfinished = (CompactionRun.Status.QUEUED, CompactionRun.Status.RUNNING)
        runs = CompactionRun.objects.filter(session__in=self.ids, status__in=unfinished)
        self.at_work.update(runs.values_list("session", flat=True))
        sessions = Session.objects.filter(pk__in=self.ids)
        lost = Q(active_branch__isnull=True) | ~Q(active_branch__session=F("pk"))
        self._suspect(sessions.filter(lost).values_list("pk", flat=True))
        over = sessions.filter(turn_expires_at__lt=Now())
        self.at_work.update(over.values_list("pk", flat=True))
        held = CompactionState.objects.filter(
            branch__session__in=self.ids, lease_owner__isnull=False
        )
        held = held.filter(Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=Now()))
        self.at_work.update(held.values_list("branch__session", flat=True))

    def _look_at_places(self) -> None:
        """Suspect branches that begin nowhere, and messages where no reader expects them."""
        for line in self.lines.values():
            half = (line.parent is None) != (line.fork_position is None)
            if half or (line.is_fork and line.parent_session != line.session):
                self.suspected.add(line.session)
        before = Message.objects.filter(
            kind__in=_SPOKEN,
            branch__session__in=self.ids,
            position__lte=Coalesce("branch__fork_position", 0),
        )
        self._suspect(before.values_list("branch__session", flat=True).distinct())

    # --- sums -------------------------------------------------------------------------------------

    def _look_at_sums(self) -> None:
        """Suspect branches whose counts, sums and cursors are not those of their messages."""
        marks = Message.objects.exclude(kind__in=_SPOKEN).filter(
            branch__session__in=self.ids,
            branch__parent__isnull=False,
            position__lte=F("branch__fork_position"),
        )
        columns = ("branch", "position", "tokens_through", "chars_through")
        marked = list(marks.values_list(*columns))
        asked: dict[UUID, set[int]] = defaultdict(set)
        for line in self.lines.values():
            asked[line.pk].add(HIGHEST)
            if line.is_fork:
                self._ask(asked, line, line.fork)
            if line.cursor:
                self._ask(asked, line, line.cursor)
        for branch, position, *_ in marked:
            self._ask(asked, self.lines[branch], position)
        self._read_sums(asked)
        for line in self.lines.values():
            if self._is_off(line):
                self.suspected.add(line.session)
        for branch, position, tokens, chars in marked:
            found = self._through(self.lines[branch], position)
            if found is None or (tokens, chars) != found.totals[1:]:
                self.suspected.add(self.lines[branch].session)

    def _ask(self, asked: dict[UUID, set[int]], line: BranchLine, position: int) -> None:
        owner = self._owner(line, position)
        if owner is not None:
            asked[owner.pk].add(position)

    def _owner(self, line: BranchLine, position: int) -> BranchLine | None:
        """Return the branch that holds the path's rows just before a position; None in a circle."""
        found: BranchLine | None = line
        for _ in range(len(self.lines) + 1):
            if found is None or not found.is_fork or position > found.fork:
                return found
            found = self.lines.get(found.parent) if found.parent else None
        return None

    def _through(self, line: BranchLine, position: int) -> Sums | None:
        """Return the sums of a branch's path up to a position that was asked for."""
        total: Sums | None = None
        owner = self._owner(line, position)
        for _ in range(len(self.lines) + 1):
            own = self.sums.get((owner.pk, position)) if owner else None
            if owner is None or own is None:
                return None
            total = own if total is None else total.with_before(own)
            if not owner.is_fork:
                return total
            position = owner.fork
            owner = self._owner(owner, position)
        return None

    def _is_off(self, line: BranchLine) -> bool:
        """Whether a branch's sums, its head, its beginning or its cursor is not as it should be."""
        whole = self._through(line, HIGHEST)
        stored = (line.messages, line.tokens, line.chars)
        if whole is None or whole.totals != stored:
            return True
        if max(self.heads.get(line.pk, 0), line.fork) > line.head:
            return True
        if line.is_fork:
            begin = self._through(line, line.fork)
            if begin is None or not begin.stands:
                return True
        if line.cursor is None:
            return False
        covered = self._through(line, line.cursor) if line.cursor else Sums(stands=True)
        said = (line.covered_messages, line.covered_tokens, line.covered_chars)
        return covered is None or not covered.stands or covered.totals != said

    def _read_sums(self, asked: dict[UUID, set[int]]) -> None:
        """Read each branch's own sums up to the positions that were asked for."""
        points = [
            (pk, low, high)
            for pk, positions in asked.items()
            for low, high in pairwise([self.lines[pk].fork, *sorted(positions)])
        ]
        for start in range(0, len(points), POINTS_AT_ONCE):
            for branch, rows in groupby(sums_of(points[start : start + POINTS_AT_ONCE]), _first):
                self._add(branch, rows)

    def _add(self, branch: UUID, rows: Iterable[tuple[UUID, int, Sums, int]]) -> None:
        """Add up what was read of a branch, whose rows come in the order of their positions."""
        # A branch with very many points may come in two parts.
        total = self.totals.get(branch, Sums())
        for _, high, sums, last in rows:
            total = sums.with_before(total)
            self.sums[branch, high] = total
            self.heads[branch] = max(self.heads.get(branch, 0), last)
        self.totals[branch] = total

    def _look_at_running_sums(self) -> None:
        """Suspect branches with a running sum that does not go on, or with another's message."""
        for branch, is_first, tokens, chars, is_elsewhere in breaks_in(self.ids):
            line = self.lines[branch]
            if is_first and not is_elsewhere:
                begin = self._through(line, line.fork) if line.is_fork else Sums()
                if begin is not None and (tokens, chars) == begin.totals[1:]:
                    continue
            self.suspected.add(line.session)

    # --- summaries --------------------------------------------------------------------------------

    def _look_at_summaries(self) -> None:
        """Suspect active summaries without their links, over the same messages, behind a cursor."""
        rows = SessionSummary.objects.filter(
            session__in=self.ids, status=Status.ACTIVE, kind=SessionSummary.Kind.COMPACTION
        )
        columns = ("branch", "covers_from", "covers_through", "pk", "message_count", "session")
        active = list(
            rows.order_by("branch", "covers_from", "covers_through").values_list(*columns)
        )
        linked = self._linked(rows)
        for branch, whole in groupby(active, _first):
            line, widest = self.lines.get(branch), LOWEST
            for _, low, high, pk, count, session in whole:
                is_right = line is not None and self._is_linked(line, linked[pk], low, high, count)
                behind = line is not None and line.cursor is not None and high > line.cursor
                if not is_right or behind or low <= widest:
                    self.suspected |= {session} | ({line.session} if line else set())
                widest = max(widest, high)
                self.active.setdefault(branch, []).append((low, high, count))

    @staticmethod
    def _linked(rows: QuerySet[SessionSummary]) -> dict[UUID, list[tuple[Any, ...]]]:
        """Return, by summary, the branches of its messages: how many they are, and their ends."""
        links = SessionSummaryMessage.objects.filter(summary__in=rows.order_by().values("pk"))
        parts = (
            links.order_by()
            .values_list("summary", "message__branch")
            .annotate(
                linked=Count("pk"), low=Min("message__position"), high=Max("message__position")
            )
        )
        found: dict[UUID, list[tuple[Any, ...]]] = defaultdict(list)
        for summary, *part in parts:
            found[summary].append(tuple(part))
        return found

    def _is_linked(
        self, line: BranchLine, parts: Sequence[tuple[Any, ...]], low: int, high: int, count: int
    ) -> bool:
        """Whether a summary is linked to as many messages of the path as it says, and its ends."""
        if not parts or sum(part[1] for part in parts) != count:
            return False
        if (min(part[2] for part in parts), max(part[3] for part in parts)) != (low, high):
            return False
        for branch, _, _, last in parts:
            if branch == line.pk:
                continue
            owner = self._owner(line, last)
            if owner is None or owner.pk != branch:
                return False
        return True

    def _look_at_hidden(self) -> None:
        """Suspect branches with more messages before their cursor than summaries and pins name.

        Where no two summaries cover the same, those that were read are as many as the links.
        """
        links = SessionSummaryMessage.objects.filter(
            message__branch__session__in=self.ids,
            message__pinned=True,
            summary__status=Status.ACTIVE,
            summary__kind=SessionSummary.Kind.COMPACTION,
        )
        read: dict[UUID, list[tuple[UUID, int]]] = defaultdict(list)
        ends = ("message", "summary__branch", "summary__covers_through")
        for message, branch, through in links.values_list(*ends):
            read[message].append((branch, through))
        rows = Message.objects.filter(
            branch__session__in=self.ids, pinned=True, kind__in=_SPOKEN
        ).values_list("branch", "position", "pk")
        pins: dict[UUID, list[tuple[int, UUID]]] = defaultdict(list)
        for branch, position, pk in rows:
            pins[branch].append((position, pk))
        for line in self.lines.values():
            if line.cursor and line.session not in self.suspected and self._hides(line, pins, read):
                self.suspected.add(line.session)

    def _hides(
        self,
        line: BranchLine,
        pins: Mapping[UUID, Sequence[tuple[int, UUID]]],
        read: Mapping[UUID, Sequence[tuple[UUID, int]]],
    ) -> bool:
        """Whether a message up to the cursor may be neither read by a summary nor pinned."""
        cursor = line.cursor or 0
        path = dict(self._path(line, cursor))
        held = sorted(
            one for pk, high in path.items() for one in self.active.get(pk, ()) if one[1] <= high
        )
        if any(later[0] <= earlier[1] for earlier, later in pairwise(held)):
            return True

        def is_read(message: UUID) -> bool:
            return any(through <= path.get(branch, LOWEST) for branch, through in read[message])

        unread = sum(
            position <= high and not (pk in read and is_read(pk))
            for branch, high in path.items()
            for position, pk in pins.get(branch, ())
        )
        return line.covered_messages != sum(one[2] for one in held) + unread

    def _path(self, line: BranchLine, position: int) -> Iterator[tuple[UUID, int]]:
        """Yield the branches of a path up to a position, each with where the path leaves it."""
        found: BranchLine | None = line
        for _ in range(len(self.lines)):
            if found is None:
                return
            yield found.pk, position
            if not found.is_fork:
                return
            position = min(position, found.fork)
            found = self.lines.get(found.parent) if found.parent else None

    def _look_at_versions(self) -> None:
        """Suspect superseded summaries that lost links, and statuses that times contradict."""
        rows = SessionSummary.objects.filter(
            branch__session__in=self.ids, kind=SessionSummary.Kind.COMPACTION
        )
        self._suspect(rows.filter(times_disagree()).values_list("branch__session", flat=True))
        lacking = rows.filter(status=Status.SUPERSEDED).annotate(linked=Count("links"))
        lacking = lacking.exclude(linked=F("message_count"))
        self._suspect(lacking.values_list("branch__session", flat=True))

    def _look_at_placeholders(self) -> None:
        """Suspect placeholders of summaries that are gone, or that never were."""
        rows = Message.objects.filter(
            branch__session__in=self.ids, kind=Message.Kind.PLACEHOLDER
        ).values_list("branch__session", "metadata__summary_id")
        marked = list(rows)
        known = set()
        if marked:
            summaries = SessionSummary.objects.filter(session__in=self.ids)
            known = {(session, str(pk)) for session, pk in summaries.values_list("session", "pk")}
        self._suspect(one[0] for one in marked if (one[0], str(one[1])) not in known)

    def _look_at_branch_summaries(self) -> None:
        """Suspect summaries of left branches that no note tells."""
        rows = SessionSummary.objects.filter(
            session__in=self.ids, status=Status.ACTIVE, kind=SessionSummary.Kind.BRANCH
        )
        told = list(rows.values_list("session", f"metadata__{NOTE}"))
        notes = Message.objects.filter(
            pk__in=[note for _, note in told if note], kind=Message.Kind.NOTE
        )
        there = {(s, str(pk)) for s, pk in notes.values_list("session", "pk")} if told else set()
        self._suspect(one[0] for one in told if (one[0], str(one[1])) not in there)

    # --- who is suspected -------------------------------------------------------------------------

    def _suspect(self, sessions: Any) -> None:
        self.suspected.update(sessions)

    def _suspect_branches(self, branches: Any) -> None:
        self.suspected |= {self.lines[pk].session for pk in branches if pk in self.lines}


def _first(row: tuple[Any, ...]) -> Any:
    return row[0]

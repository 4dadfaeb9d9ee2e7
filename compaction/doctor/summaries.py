"""What may be wrong with summaries: their links, their coverage, their placeholders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Max, Min, Q
from django.db.models.functions import Length

from chatapp.formatting import plural
from chatapp.models import Branch, Message, Session
from chatapp.selectors import on_path_q
from compaction.doctor.findings import NOTHING, BranchPath, Finding, Severity
from compaction.doctor.repair import part_overlapping, take_back
from compaction.models import SessionSummary, SessionSummaryMessage
from compaction.selectors import NOTE, summaries_of

SUMMARIES_AT_ONCE = 50


@dataclass(slots=True)
class _Marks:
    """How many placeholders of one kind a branch has, and which is the first."""

    count: int = 0
    first: UUID | None = None

    def add(self, pk: UUID) -> None:
        self.count += 1
        self.first = self.first or pk

    def note(self, line: BranchPath, *, code: str, what: str) -> Iterator[Finding]:
        """Yield the note about them; none where there are none."""
        if self.count:
            yield Finding(
                code=code,
                text=f"{plural(self.count, 'placeholder')} {what}",
                severity=Severity.NOTE,
                remedy=NOTHING,
                session=line.branch.session_id,
                branch=line.branch.pk,
                message=self.first,
            )


Status = SessionSummary.Status


def check_placeholders(session: Session, lines: Sequence[BranchPath]) -> Iterator[Finding]:
    """Yield, a branch each, placeholders whose summary is gone and those that never had one."""
    known = {
        str(pk)
        for pk in SessionSummary.objects.filter(session=session).values_list("pk", flat=True)
    }
    for line in lines:
        alone, bare, blank = _Marks(), _Marks(), _Marks()
        for pk, named, size in _marks(line):
            if named is not None:
                if str(named) not in known:
                    alone.add(pk)
            else:
                (bare if size else blank).add(pk)
        yield from alone.note(
            line,
            code="placeholder_alone",
            what="for a summary that does not exist. None is ever sent. The messages that were "
            "summarised there are sent verbatim, as far as no other summary covers them.",
        )
        yield from bare.note(
            line, code="placeholder_bare", what=f"{_BARE} {_what_is_sent(line.branch)}"
        )
        yield from blank.note(
            line,
            code="placeholder_blank",
            what=f"{_BARE} Without a text none is ever sent, and none covers a message.",
        )


_BARE = "without a summary row, from an import or old data."


def _what_is_sent(branch: Branch) -> str:
    """Return what becomes of the texts in placeholders that have no summary row."""
    if summaries_of(branch).exists():
        return "The branch is summarised: its summaries are sent, and no text of a placeholder."
    return (
        "As many of the newest texts in them as the profile sends summaries stand for what came "
        "before, until the branch is summarised."
    )


def _marks(line: BranchPath) -> Iterator[tuple[UUID, object, int]]:
    rows = Message.objects.filter(branch=line.branch, kind=Message.Kind.PLACEHOLDER)
    found = rows.order_by("position").values_list("pk", "metadata__summary_id", Length("summary"))
    yield from found.iterator(chunk_size=2000)


def check_branch_summaries(session: Session) -> Iterator[Finding]:
    """Yield the summaries of branches that were left which no note tells: none is ever sent."""
    rows = SessionSummary.objects.filter(
        session=session,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.BRANCH,
    )
    by_note = {note: pk for pk, note in rows.values_list("pk", f"metadata__{NOTE}")}
    ids = [note for note in by_note if note]
    there = Message.objects.filter(pk__in=ids, session=session, kind=Message.Kind.NOTE)
    told = {str(pk) for pk in there.values_list("pk", flat=True)}
    for note, pk in by_note.items():
        if note not in told:
            yield Finding(
                code="branch_summary_untold",
                text="The summary of a branch that was left is told by no note, so no request "
                "holds it. The messages that it was made from are all stored.",
                severity=Severity.NOTE,
                remedy=NOTHING,
                session=session.pk,
                summary=pk,
            )


def check_versions(line: BranchPath) -> Iterator[Finding]:
    """Yield, a branch each, what is wrong with versions that do not count and with statuses' times.

    Nothing of it changes a request: the notes say what people cannot rely on.
    """
    rows = SessionSummary.objects.filter(
        branch=line.branch, kind=SessionSummary.Kind.COMPACTION
    ).order_by("created_at", "pk")
    # One that was taken back may have been for just that.
    aside = rows.filter(status=Status.SUPERSEDED)
    lacking = aside.annotate(linked=Count("links")).exclude(linked=F("message_count"))
    yield from _versions(
        line,
        list(lacking.values_list("pk", flat=True)),
        code="version_without_links",
        what="lost links to messages, and cannot be activated any more. The text stays readable.",
    )
    yield from _versions(
        line,
        list(rows.filter(times_disagree()).values_list("pk", flat=True)),
        code="status_times_disagree",
        what="had another status after that of now, by the times that are noted: somebody changed "
        "the row by other means than this program.",
    )


def times_disagree() -> Q:
    """Return the condition for rows whose status is not the last one that a time is noted for."""
    columns = {
        Status.ACTIVE: "activated_at",
        Status.SUPERSEDED: "superseded_at",
        Status.RESTORED: "restored_at",
    }
    found = Q(pk__in=())
    for status, since in columns.items():
        for other in set(columns.values()) - {since}:
            found |= Q(status=status, **{f"{other}__gt": F(since)})
    return found


def _versions(
    line: BranchPath, versions: Sequence[UUID], *, code: str, what: str
) -> Iterator[Finding]:
    if versions:
        count = "1 summary" if len(versions) == 1 else f"{len(versions):,} summaries"
        yield Finding(
            code=code,
            text=f"{count} {what}",
            severity=Severity.NOTE,
            remedy=NOTHING,
            session=line.branch.session_id,
            branch=line.branch.pk,
            summary=versions[0],
        )


_BACK = (
    "It is marked as restored, with those built on it, and the cursor goes back: its messages are "
    "sent verbatim again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """An active summary, and what its links say: how many, from where to where, on the path."""

    pk: UUID
    covers_from: int
    covers_through: int
    message_count: int
    linked: int
    on_path: int
    low: int | None
    high: int | None

    @property
    def links_lost(self) -> bool:
        return self.linked != self.message_count or not self.linked

    @property
    def links_elsewhere(self) -> bool:
        ends = (self.covers_from, self.covers_through)
        return self.on_path != self.linked or (self.low, self.high) != ends


def check_summaries(line: BranchPath) -> Iterator[Finding]:
    """Yield what is wrong with the active summaries of a branch, the earliest first.

    Other branches of the path may have summarised what they share with this one: of those the
    newest is sent, which is no fault.
    """
    rows = _active(line)
    for row in rows:
        if row.links_lost:
            yield _lost(line.branch, row)
        elif row.links_elsewhere:
            yield _elsewhere(line.branch, row)
    yield from _overlaps(line.branch, [row for row in rows if not row.links_lost])


def _active(line: BranchPath) -> list[_Row]:
    """Return the active summaries of a branch with what their links say.

    Those are read by ids, some summaries at a time: of all that a long branch has at once,
    PostgreSQL would read the whole table.
    """
    rows = SessionSummary.objects.filter(
        branch=line.branch,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
    ).order_by("covers_from", "covers_through")
    known = list(rows.values("pk", "covers_from", "covers_through", "message_count"))
    linked = on_path_q(line.branch, "message__branch", "message__position")
    told: dict[Any, tuple[Any, ...]] = {}
    for start in range(0, len(known), SUMMARIES_AT_ONCE):
        part = [row["pk"] for row in known[start : start + SUMMARIES_AT_ONCE]]
        links = SessionSummaryMessage.objects.filter(summary__in=part).order_by()
        found = links.values_list("summary").annotate(
            linked=Count("pk"),
            on_path=Count("pk", filter=linked),
            low=Min("message__position"),
            high=Max("message__position"),
        )
        told |= {summary: tuple(said) for summary, *said in found}
    names = ("linked", "on_path", "low", "high")
    none = (0, 0, None, None)
    return [
        _Row(**row, **dict(zip(names, told.get(row["pk"], none), strict=True))) for row in known
    ]


def _lost(branch: Branch, row: _Row) -> Finding:
    return Finding(
        code="links_missing",
        text=f"The summary was made from {plural(row.message_count, 'message')} and is linked to "
        f"{row.linked:,}: nobody can tell what it covers.",
        remedy=_BACK,
        session=branch.session_id,
        branch=branch.pk,
        summary=row.pk,
        repair=partial(take_back, row.pk),
    )


def _elsewhere(branch: Branch, row: _Row) -> Finding:
    return Finding(
        code="links_elsewhere",
        text="The summary is linked to other messages than it says it covers: what it hides and "
        "what it was made from are not the same.",
        remedy=_BACK,
        session=branch.session_id,
        branch=branch.pk,
        summary=row.pk,
        repair=partial(take_back, row.pk),
    )


def _overlaps(branch: Branch, rows: Sequence[_Row]) -> Iterator[Finding]:
    widest: _Row | None = None
    for row in rows:
        if widest is not None and row.covers_from <= widest.covers_through:
            later = max(widest, row, key=lambda one: one.covers_through)
            earlier = row if later is widest else widest
            yield Finding(
                code="summaries_overlap",
                text="Two active summaries of the branch cover the same messages: only the later "
                "one is sent, and what the other one alone has read is lost to the model.",
                remedy="The earlier one is superseded where the later one has read all that it "
                "read; else the later one is taken back.",
                session=branch.session_id,
                branch=branch.pk,
                summary=later.pk,
                repair=partial(part_overlapping, earlier.pk, later.pk),
            )
        if widest is None or row.covers_through > widest.covers_through:
            widest = row

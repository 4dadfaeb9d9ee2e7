"""Entries of a timeline, and pages of them: merged from tables, found by time, never counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit.page_parts import Link
from chatapp.compiled import CompiledRead, compiled_read
from chatapp.models import Branch, Session
from chatapp.round_trips import together

PAGE_ENTRIES = 25
_BETWEEN = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One thing that happened. `label` stands in a badge of a `tone` (good, bad, busy).

    `reason` is a sentence, `said` are the server's own words, `means` what follows from it. What
    may quote a conversation or a server stands there only where texts were asked for.
    `drawing` is shown where there is room for it: on the page, not in the panel.
    """

    at: datetime
    title: str
    label: str
    tone: str = ""
    reason: SafeString | str = ""
    said: str = ""
    numbers: Sequence[tuple[str, str]] = ()
    means: str = ""
    links: Sequence[Link] = ()
    drawing: SafeString | str = ""


class TimelineSource(Protocol):
    """One table of a timeline. Its rows have `created_at` and are read by (session, -created_at).

    `key` is unique among the sources of a page: it decides between rows of one moment.
    """

    key: str

    def rows(self, session: Session) -> QuerySet[Any]:
        """Return the session's rows in any order."""

    def entries(
        self, session: Session, rows: Sequence[Any], *, texts: bool
    ) -> Mapping[Any, TimelineEntry]:
        """Return the entries of some rows by their primary keys, in a fixed number of queries.

        Without `texts` they say nothing that may quote a conversation or a server.
        """


class CompiledSource:
    """A source whose rows nothing but the session's key decides: their SQL is made once.

    What `rows` is given has no more than that key. A source that asks for the time, or for anything
    else that changes, is none: its first answer would hold for the process.
    """

    def rows(self, session: Session) -> QuerySet[Any]:
        """Return the rows of the session of that key in any order."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePlace:
    """Where an entry stands: its moment, then its table, then its row."""

    at: datetime
    key: str
    pk: Any

    @property
    def order(self) -> Any:
        """What places are sorted by."""
        return self.at, self.key, self.pk

    def __str__(self) -> str:
        return _BETWEEN.join((self.at.astimezone(UTC).isoformat(), self.key, str(self.pk)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePage:
    """Entries, newest first; `older` and `newer` are where the next pages begin, or None."""

    entries: list[TimelineEntry]
    older: TimelinePlace | None = None
    newer: TimelinePlace | None = None


def place_of(text: str, sources: Sequence[TimelineSource]) -> TimelinePlace | None:
    """Return the place that an address names; None for anything odd.

    The time alone is the place before everything of that moment.
    """
    moment, _, rest = text.partition(_BETWEEN)
    key, _, row = rest.partition(_BETWEEN)
    try:
        at = datetime.fromisoformat(moment)
        if at.tzinfo is None:
            return None
        at = at.astimezone(UTC)
        if not rest:
            return TimelinePlace(at=at, key="", pk=None)
        source = next(one for one in sources if one.key == key)
        pk = source.rows(Session()).model._meta.pk.to_python(row)
    except (ValueError, OverflowError, StopIteration, ValidationError):
        return None
    return TimelinePlace(at=at, key=key, pk=pk)


def read_timeline(
    session: Session,
    sources: Sequence[TimelineSource],
    *,
    before: TimelinePlace | None = None,
    after: TimelinePlace | None = None,
    most: int = PAGE_ENTRIES,
    texts: bool = True,
) -> TimelinePage:
    """Return the entries before a place, or those after one; without either, the newest.

    Every table is asked for one page of rows, however old the session is. Without `texts` the
    entries are those for operators who may not see any.
    """
    down = after is None
    if before is None and after is None:
        of_sources = _newest_rows(session, sources, most=most + 1)
    else:
        order = ("-created_at", "-pk") if down else ("created_at", "pk")
        beyond = [
            _beyond(source.rows(session), source.key, before if down else after, down)
            for source in sources
        ]
        of_sources = [list(rows.order_by(*order)[: most + 1]) for rows in beyond]
    found = [
        (TimelinePlace(at=row.created_at, key=source.key, pk=row.pk), row)
        for source, rows in zip(sources, of_sources, strict=True)
        for row in rows
    ]
    found.sort(key=lambda one: one[0].order, reverse=down)
    more = len(found) > most
    kept = sorted(found[:most], key=lambda one: one[0].order, reverse=True)
    if not kept:
        return TimelinePage(entries=[])
    return TimelinePage(
        entries=_read_entries(session, sources, kept, texts=texts),
        older=kept[-1][0] if more or not down else None,
        newer=kept[0][0] if (before is not None if down else more) else None,
    )


def _newest_rows(
    session: Session, sources: Sequence[TimelineSource], *, most: int
) -> list[list[Any]]:
    """Return each source's newest rows; those of compiled ones are asked for in one message."""
    compiled = [source for source in sources if isinstance(source, CompiledSource)]
    reads = [newest_of(source).asked(session=session.pk, most=most) for source in compiled]
    answered = iter(together(*reads) if reads else [])
    return [
        next(answered)
        if isinstance(source, CompiledSource)
        else list(_newest_first(source.rows(session))[:most])
        for source in sources
    ]


def _newest_first(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.order_by("-created_at", "-pk")


@cache
def newest_of(source: CompiledSource) -> CompiledRead[Any]:
    """Return the read of a source's newest rows, whose SQL is made once."""

    def newest(*, session: UUID) -> QuerySet[Any]:
        return _newest_first(source.rows(Session(pk=session)))

    newest.__name__ = f"newest_of_{type(source).__name__}"
    return compiled_read(newest)


def _beyond(
    rows: QuerySet[Any], key: str, place: TimelinePlace | None, down: bool
) -> QuerySet[Any]:
    """Keep what comes behind a place in the direction of reading."""
    if place is None:
        return rows
    side = "lt" if down else "gt"
    ties = key < place.key if down else key > place.key
    if key != place.key:
        return rows.filter(**{f"created_at__{side}{'e' if ties else ''}": place.at})
    further = Q(**{f"created_at__{side}": place.at})
    further |= Q(**{"created_at": place.at, f"pk__{side}": place.pk})
    # The range alone is what an index is read by.
    return rows.filter(further, **{f"created_at__{side}e": place.at})


def _read_entries(
    session: Session,
    sources: Sequence[TimelineSource],
    kept: Sequence[tuple[TimelinePlace, Any]],
    *,
    texts: bool,
) -> list[TimelineEntry]:
    made = {
        source.key: source.entries(
            session, [row for place, row in kept if place.key == source.key], texts=texts
        )
        for source in sources
    }
    return [made[place.key][place.pk] for place, _ in kept]


class Replays(CompiledSource):
    """Branches that repeat another with shortened tool results."""

    key = "replay"

    def rows(self, session: Session) -> QuerySet[Branch]:
        """Return the session's replays."""
        return Branch.objects.filter(session=session.pk, kind=Branch.Kind.REPLAY)

    def entries(
        self, session: Session, rows: Sequence[Branch], *, texts: bool = True
    ) -> Mapping[Any, TimelineEntry]:
        """Return an entry a row; nothing more is read."""
        return {row.pk: self._entry(row) for row in rows}

    def _entry(self, branch: Branch) -> TimelineEntry:
        links = [Link.to("New branch", Branch, branch.pk)]
        if branch.replaces_id:
            links.append(Link.to("Branch it replaces", Branch, branch.replaces_id))
        return TimelineEntry(
            at=branch.created_at,
            title="The conversation was replayed with shortened tool results",
            label=str(branch.get_kind_display()),
            tone="busy",
            reason=f"A new branch leaves the old one behind position "
            f"{formatting.place(branch.fork_position or 0)} and repeats what follows.",
            numbers=[
                ("Messages", formatting.number(branch.message_count)),
                ("Tokens", formatting.number(branch.token_total)),
            ],
            means="The old branch is stored as it was, with the whole texts.",
            links=links,
        )

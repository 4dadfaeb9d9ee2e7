"""The list of what needs a look: newest first, in pages, without what people have set aside.

Two statements a kind, whatever is stored and however much was set aside; a page begins behind a
cursor, so that no page costs more than the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from chatapp.database import database_now
from compaction.attention.kinds import KIND_NAMES, KINDS, LookItem, LookKind
from compaction.attention.marks import floor_of
from compaction.models import LookMark

PAGE_ITEMS = 25
MOST_COUNTED = 100
"""More than so many of a kind are not counted: the list says "100+"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookCursor:
    """The last item of a page; the next page begins behind it."""

    at: datetime
    kind: str
    subject: str

    @classmethod
    def read(cls, text: str) -> LookCursor | None:
        """Return the cursor that an address names; None for none, and for one that is no cursor."""
        moment, _, rest = text.partition("~")
        kind, _, subject = rest.partition("~")
        try:
            at = datetime.fromisoformat(moment)
        except ValueError:
            return None
        if kind not in KIND_NAMES or KIND_NAMES[kind].key(subject) is None or at.tzinfo is None:
            return None
        return cls(at=at, kind=kind, subject=subject)

    def __str__(self) -> str:
        return f"{self.at.isoformat()}~{self.kind}~{self.subject}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookList:
    """One page; `counts` are those of all pages by kind, read with the first page alone."""

    items: Sequence[LookItem]
    next_cursor: LookCursor | None
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many things there are, as far as they are counted."""
        return sum(self.counts.values())


def needs_look(
    kinds: Iterable[LookKind] = KINDS, *, behind: LookCursor | None = None, most: int = PAGE_ITEMS
) -> LookList:
    """Return a page of what needs a look of these kinds."""
    found: list[LookItem] = []
    counts: dict[str, int] = {}
    for kind in kinds:
        read = most + 1 if behind else max(most, MOST_COUNTED) + 1
        items = [kind.item(row) for row in _page_of(kind, behind).values(*kind.columns)[:read]]
        if behind is None and items:
            counts[kind.name] = len(items)
        found += items
    found.sort(key=_place)
    shown = found[:most]
    more = len(found) > most
    cursor = None
    if more:
        last = shown[-1]
        cursor = LookCursor(at=last.at, kind=last.kind.name, subject=last.subject)
    return LookList(items=shown, next_cursor=cursor, counts=counts)


def waiting(kind: LookKind) -> QuerySet[Any]:
    """Return the rows of a kind that nobody has set aside."""
    marks = LookMark.objects.filter(kind=kind.name, **{kind.marked: OuterRef(kind.subject)})
    aside = Q(hidden_until__gt=database_now()) | Q(done_at__gte=OuterRef(kind.at))
    rows, floor = kind.rows(), floor_of(kind)
    if floor is not None:
        rows = rows.filter(**{f"{kind.at}__gt": floor})
    return rows.filter(~Exists(marks.filter(aside)))


def _page_of(kind: LookKind, behind: LookCursor | None) -> QuerySet[Any]:
    """Return the rows behind the cursor, in the order of the list."""
    rows = waiting(kind).order_by(f"-{kind.at}", kind.subject)
    if behind is None:
        return rows
    order = list(KIND_NAMES)
    earlier = Q(**{f"{kind.at}__lt": behind.at})
    if order.index(kind.name) > order.index(behind.kind):
        return rows.filter(earlier | Q(**{kind.at: behind.at}))
    if kind.name == behind.kind:
        same = Q(**{kind.at: behind.at, f"{kind.subject}__gt": behind.subject})
        return rows.filter(earlier | same)
    return rows.filter(earlier)


def _place(item: LookItem) -> tuple[float, int, str]:
    """Return what the list is sorted by: newest first, then kinds in their order."""
    return -item.at.timestamp(), list(KIND_NAMES).index(item.kind.name), item.subject

"""What people say of things that need a look: done, or not before a time; and take it back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from chatapp.audit import record
from chatapp.database import database_now
from chatapp.formatting import when_utc
from chatapp.ids import short_id
from chatapp.models import Branch
from chatapp.transcript import lock_some_branches
from compaction.attention.kinds import BRANCH, KIND_NAMES, KINDS, LOOK_DAYS, LookItem, LookKind
from compaction.errors import CompactionError
from compaction.models import LookMark


def find_item(kind_name: str, subject: str) -> LookItem:
    """Return one thing as it is now; CompactionError where it needs no look any more."""
    kind = KIND_NAMES.get(kind_name)
    key = kind.key(subject) if kind else None
    row = None
    if kind is not None and key is not None:
        row = kind.rows().filter(**{kind.subject: key}).values(*kind.columns).first()
    if kind is None or row is None:
        raise CompactionError("It needs no look any more; this is how things stand now.")
    return kind.item(row)


def mark_done(item: LookItem, *, by: Any) -> LookMark:
    """Take a thing off the list until it happens again; return the mark, which says who did it."""
    now = database_now()
    mark = _mark(item, marked_by=by, marked_at=now, done_at=now, hidden_until=None)
    _tell(mark, "look_done", "is off the list until it happens again", by=by)
    return mark


# A floor is not put where rows may still come: clocks differ, and transactions take their time.
FLOOR_MARGIN = timedelta(minutes=10)
FLOOR_BATCH = 2_000


def floor_of(kind: LookKind) -> datetime | None:
    """Return up to when all that happened of a kind is done; None where nobody knows.

    It is the mark of no thing: `done_at` of the row of the kind alone.
    """
    if kind.events is None:
        return None
    return _floors(kind).values_list("done_at", flat=True).first()


def above_floor(kind: LookKind) -> Coalesce:
    """Return what the moments of a kind's waiting things are later than, for its own statement."""
    floor = _floors(kind).values("done_at")[:1]
    return Coalesce(Subquery(floor), Value(database_now() - timedelta(days=LOOK_DAYS + 1)))


def raise_floors(kinds: Iterable[LookKind] = KINDS) -> None:
    """Put the floor of each kind to just before the first thing that is not done.

    Each thing that happened is looked at once: the next time goes on where this one ended.
    """
    for kind in kinds:
        if kind.events is not None:
            _raise_floor(kind, kind.events())


def _raise_floor(kind: LookKind, events: QuerySet[Any]) -> None:
    # Made before anything is read: who takes a thing back meanwhile deletes it, and it is not put.
    LookMark.objects.bulk_create([LookMark(kind=kind.name)], ignore_conflicts=True)
    row = _floors(kind).first()
    if row is None:
        return
    top = database_now() - FLOOR_MARGIN
    # What is older is in no list: one that nobody marked would keep the floor down for ever.
    oldest = top - timedelta(days=LOOK_DAYS)
    begun = row.done_at or oldest
    floor = max(begun, oldest)
    marks = LookMark.objects.filter(
        kind=kind.name, done_at__gte=OuterRef(kind.at), **{kind.marked: OuterRef(kind.subject)}
    )
    rows = events.filter(**{f"{kind.at}__lt": top, f"{kind.subject}__isnull": False})
    rows = rows.annotate(is_done=Exists(marks)).order_by(kind.at)
    size = FLOOR_BATCH
    while True:
        # From the last moment on, not behind it: of two things of one moment one may not be done.
        part = rows.filter(**{f"{kind.at}__gte": floor})
        found = list(part.values_list(kind.at, "is_done")[:size])
        first = next((at for at, is_done in found if not is_done), None)
        if first is not None or len(found) < size:
            floor = (first or top) - timedelta(microseconds=1)
            break
        size = FLOOR_BATCH if found[-1][0] > floor else 2 * size
        floor = found[-1][0]
    if floor > begun:
        _set_floor(row, floor)


def _set_floor(row: LookMark, floor: datetime) -> None:
    LookMark.objects.filter(pk=row.pk).update(done_at=floor)


def _floors(kind: LookKind) -> QuerySet[LookMark]:
    return LookMark.objects.filter(kind=kind.name, branch__isnull=True, model="")


def snooze(item: LookItem, *, until: datetime, by: Any) -> LookMark:
    """Take a thing off the list until a time; CompactionError for a time that is over."""
    now = database_now()
    if until <= now:
        raise CompactionError("That time is over: name a later one.")
    mark = _mark(item, marked_by=by, marked_at=now, done_at=None, hidden_until=until)
    _floors(item.kind).delete()
    _tell(mark, "look_snoozed", f"is off the list until {when_utc(until)}", by=by)
    return mark


def bring_back(mark: LookMark, *, by: Any = None) -> None:
    """Take back what somebody said of a thing: if it is still so, it is in the list again.

    Whether it was alerted stays known, so that nobody is told of it a second time.
    """
    LookMark.objects.filter(pk=mark.pk).update(
        done_at=None, hidden_until=None, marked_by=None, marked_at=None
    )
    # What is not done any more may stand below the floor.
    LookMark.objects.filter(kind=mark.kind, branch__isnull=True, model="").delete()
    _tell(mark, "look_brought_back", "is in the list again, if it is still so", by=by)


def _tell(mark: LookMark, action: str, said: str, *, by: Any) -> None:
    """Write into the session's audit log what somebody said of a thing of its branch.

    What is marked of a model belongs to no session: the admin's own history has it. The branch is
    locked before the entry names session and branch, in the order of everyone who locks both: who
    deletes the session at this moment would be waited for, and wait.
    """
    kind, branch = KIND_NAMES.get(mark.kind), mark.branch
    if kind is None or branch is None:
        return
    text = f"“{kind.label}” of branch {short_id(branch.pk)} {said}."
    with transaction.atomic():
        lock_some_branches(branch.session_id, branch.pk)
        if Branch.objects.filter(pk=branch.pk).exists():
            record(branch.session_id, action, text, by=by, branch=branch)


def set_aside() -> QuerySet[LookMark]:
    """Return the marks that people made, newest first; a snooze that is over is none any more."""
    lasting = Q(done_at__isnull=False) | Q(hidden_until__gt=database_now())
    made = LookMark.objects.filter(lasting, marked_at__isnull=False)
    return made.select_related("marked_by").order_by("-marked_at", "-pk")


def mark_of(item: LookItem) -> LookMark:
    """Return the row of a thing, made where there is none."""
    key = item.kind.key(item.subject)
    named = {"kind": item.kind.name, item.kind.marked: key}
    # Two people, or a person and the sweep, may be the first at once.
    LookMark.objects.bulk_create([LookMark(**_columns(item))], ignore_conflicts=True)
    return LookMark.objects.get(**named)


def _columns(item: LookItem) -> dict[str, Any]:
    if item.kind.marked == BRANCH:
        return {"kind": item.kind.name, "branch_id": UUID(item.subject)}
    return {"kind": item.kind.name, "model": item.subject}


def _mark(item: LookItem, **changes: Any) -> LookMark:
    mark = mark_of(item)
    LookMark.objects.filter(pk=mark.pk).update(**changes)
    mark.refresh_from_db()
    return mark

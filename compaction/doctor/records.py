"""What may be wrong with rows beside the conversation: holds, requests, audit entries, bulk items.

Each fault is one condition on one table, the same for one session and for a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from chatapp.formatting import plural
from chatapp.models import AnswerRequest, AuditEntry, Branch, Message, Session
from compaction.branches.holds import RELEASED
from compaction.doctor.findings import Finding
from compaction.engine.policy.holds import HoldEnd
from compaction.models import BulkItem, BulkJob, CompactionState, LookMark

LEFT_OPEN = "Its job had ended: nothing was done with this session."
Rows = QuerySet[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFault:
    """One fault: which rows have it, of which session they are, and what mends them.

    `session` is the lookup of the session's id, `wrong` chooses among the rows of some sessions;
    `text` follows the number of rows, `noun` is what one is called.
    """

    code: str
    rows: Callable[[], Rows]
    session: str
    wrong: Callable[[Rows], Rows]
    noun: str
    text: str
    remedy: str
    mend: Callable[[Rows], object]

    def of(self, session_ids: Sequence[UUID]) -> Rows:
        """Return the rows of these sessions that have the fault."""
        return self.wrong(self.rows().filter(**{f"{self.session}__in": list(session_ids)}))


def check_records(session: Session) -> Iterator[Finding]:
    """Yield what is wrong with the rows beside a session's conversation."""
    for fault in FAULTS:
        count = fault.of([session.pk]).count()
        if count:
            yield Finding(
                code=fault.code,
                text=f"{plural(count, fault.noun)} {fault.text}",
                remedy=fault.remedy,
                session=session.pk,
                repair=partial(_mend, fault, session.pk),
            )


def _mend(fault: RecordFault, session_id: UUID) -> None:
    fault.mend(fault.of([session_id]))


def sessions_with_wrong_records(session_ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the sessions that `check_records` finds something in; a statement a fault."""
    found: set[UUID] = set()
    for fault in FAULTS:
        rows = fault.of(session_ids).order_by()
        found |= set(rows.values_list(fault.session, flat=True).distinct())
    return found


# --- the conditions -------------------------------------------------------------------------------


def _remains(rows: Rows) -> Rows:
    """Return the states that are not held and say who holds them, since when or until when."""
    said = ~Q(hold_end="") | Q(held_by__isnull=False)
    said |= Q(held_at__isnull=False) | Q(held_until__isnull=False)
    return rows.filter(said, hold_through__isnull=True)


def _unclear(rows: Rows) -> Rows:
    """Return the states that are held and do not say since when, or what ends it."""
    known = Q(hold_end__in=[end.value for end in HoldEnd], held_at__isnull=False)
    endless = Q(hold_end=HoldEnd.TIME.value, held_until__isnull=True)
    return rows.filter(hold_through__isnull=False).filter(~known | endless)


def _make_clear(rows: Rows) -> object:
    return _by_id(rows).update(
        hold_end=HoldEnd.PERSON.value, held_at=Coalesce("held_at", Now()), held_until=None
    )


def _of_no_answer(rows: Rows) -> Rows:
    answers = Q(message__role=Message.Role.ASSISTANT, message__session=F("session"))
    return rows.filter(message__isnull=False).exclude(answers)


def _lost_branch(rows: Rows) -> Rows:
    """Return the answers that went without messages in a branch which the session has not."""
    there = Branch.objects.filter(pk=OuterRef("left_out_branch"), session=OuterRef("session"))
    return rows.filter(~Exists(there), left_out_branch__isnull=False, message__isnull=False)


def _name_branch(rows: Rows) -> object:
    found = {row.pk: row for row in rows.select_related("message")}
    for row in found.values():
        row.left_out_branch = row.message.branch_id
    return AnswerRequest.objects.bulk_update(found.values(), ["left_out_branch"])


def _by_id(rows: Rows) -> Rows:
    """Return the rows by their ids: a condition on another table cannot stand in an UPDATE."""
    ids = list(rows.values_list("pk", flat=True))
    return cast(Rows, rows.model._default_manager.filter(pk__in=ids))


def _delete(rows: Rows) -> object:
    return _by_id(rows).delete()


def _update(rows: Rows, **columns: Any) -> object:
    return _by_id(rows).update(**columns)


FAULTS: tuple[RecordFault, ...] = (
    RecordFault(
        code="hold_remains",
        rows=CompactionState.objects.all,
        session="branch__session",
        wrong=_remains,
        noun="branch",
        text="with what is left of a hold: not held, yet somebody is named, or a time.",
        remedy="What is left of the hold is cleared.",
        mend=partial(_update, **RELEASED),
    ),
    RecordFault(
        code="hold_unclear",
        rows=CompactionState.objects.all,
        session="branch__session",
        wrong=_unclear,
        noun="branch",
        text="with a hold that does not say since when, or what ends it.",
        remedy="It is held until somebody lifts it, and says since when; nothing is compacted "
        "that a person took back.",
        mend=_make_clear,
    ),
    RecordFault(
        code="request_of_no_answer",
        rows=AnswerRequest.objects.all,
        session="session",
        wrong=_of_no_answer,
        noun="record",
        text="of what was sent, for messages that are no answers of this session.",
        remedy="They are deleted; no message changes.",
        mend=_delete,
    ),
    RecordFault(
        code="request_text_lost",
        rows=AnswerRequest.objects.all,
        session="session",
        wrong=lambda rows: rows.filter(message__isnull=True, packed__isnull=True),
        noun="text",
        text="of requests without content: what was made of them cannot be rebuilt.",
        remedy="The empty rows are deleted, so that the texts are stored with the next request.",
        mend=_delete,
    ),
    RecordFault(
        code="left_out_dangling",
        rows=AnswerRequest.objects.all,
        session="session",
        wrong=_lost_branch,
        noun="answer",
        text="given without part of the conversation, in a branch that this session does not have: "
        "the list of what needs a look leads nowhere.",
        remedy="The branch of the answer is noted.",
        mend=_name_branch,
    ),
    RecordFault(
        code="audit_elsewhere",
        rows=AuditEntry.objects.all,
        session="session",
        wrong=lambda rows: rows.filter(branch__isnull=False).exclude(branch__session=F("session")),
        noun="audit entry",
        text="with a branch of another session.",
        remedy="The entries stay, without the branch.",
        mend=partial(_update, branch=None),
    ),
    RecordFault(
        code="bulk_item_open",
        rows=BulkItem.objects.all,
        session="session",
        wrong=lambda rows: rows.filter(
            job__status=BulkJob.Status.DONE,
            status__in=(BulkItem.Status.WAITING, BulkItem.Status.PLANNED),
        ),
        noun="bulk item",
        text="left waiting by a bulk job that is done: nobody will work at it.",
        remedy="They say that nothing was done; start another job for the session.",
        mend=partial(_update, status=BulkItem.Status.NOTHING, error=LEFT_OPEN, ended_at=Now()),
    ),
    RecordFault(
        code="look_mark_twofold",
        rows=LookMark.objects.all,
        session="branch__session",
        wrong=lambda rows: rows.filter(done_at__isnull=False, hidden_until__isnull=False),
        noun="look mark",
        text="that say at once that a thing is done and that it is put off.",
        remedy="They say that it is done; when it happens again, it is back.",
        mend=partial(_update, hidden_until=None),
    ),
)
"""In the order in which they are told."""

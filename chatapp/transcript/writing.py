"""The only writers of new messages, each under the session's lock: append, insert, pin."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import F, Max, Min, OuterRef, Q, QuerySet, Subquery
from django.dispatch import Signal
from django.utils import timezone

from chatapp.answer_requests import move_places
from chatapp.audit import record
from chatapp.context.backend import context_backend
from chatapp.formatting import plural
from chatapp.groups import group_of
from chatapp.ids import new_id
from chatapp.llm.tokens import ModelTokenCounter, count_message
from chatapp.messages.wire import CUT_FROM, REPLACED, Cleaner, WireMessage, fields_of
from chatapp.models import POSITION_STEP, Branch, Message, MessageOriginal, Session
from chatapp.selectors import copies_of, model_of
from chatapp.titles import told_by
from chatapp.transcript.part_files import files_only_if_stored, keep_apart, look_again
from chatapp.transcript.placing import (
    Beside,
    BranchGoneError,
    Ending,
    SessionMark,
    place_where_it_goes_on,
    store_originals,
)
from chatapp.transcript.sums import PathSums, add_behind, count_chars, sums_at


class TranscriptError(Exception):
    """A write was refused; the text says why."""


class KeyReusedError(TranscriptError):
    """An Idempotency-Key came back with another body."""


class SessionDeletedError(TranscriptError):
    """The session was deleted while it was written to."""

    def __init__(self) -> None:
        super().__init__("The session was deleted meanwhile; nothing was stored.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to be stored: its OpenAI chat form and what the form has no place for.

    `key` is the id that its row gets; without one, a new one.
    """

    wire: Mapping[str, Any]
    key: UUID | None = None
    kind: str = Message.Kind.MESSAGE
    summary: str = ""
    reasoning: str = ""
    usage: Mapping[str, Any] | None = None
    finish_reason: str = ""
    response_id: str = ""
    pinned: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


_COUNT = "SELECT COUNT(*) FROM ({}) AS locked"


def lock_branches(session_id: UUID, *, for_deletion: bool = False) -> None:
    """Lock the session's branches, so that nobody appends while positions or sums are used.

    Everyone who locks several branches, or adds one to others, calls this: the oldest branch comes
    first and lets one of them in at a time, so none meets a branch that was not there when it
    began. On SQLite the transaction holds the write lock already (IMMEDIATE).
    """
    if not connection.features.has_select_for_update:
        return
    # Who deletes also waits for those that are about to name a branch in rows of their own.
    no_key = connection.features.has_select_for_no_key_update and not for_deletion
    rows = Branch.objects.select_for_update(no_key=no_key).filter(session_id=session_id)
    sql, params = rows.order_by("created_at", "pk").values("pk").query.sql_with_params()
    with connection.cursor() as cursor:
        # Counted there: a session may have thousands of branches, and nobody reads their ids.
        cursor.execute(_COUNT.format(sql), params)


def lock_some_branches(session_id: UUID, *branch_ids: UUID) -> None:
    """Lock these of the session's branches, and keep out everyone who locks all of them.

    The oldest branch, which comes first for everybody, is locked with them: the cost does not grow
    with the number of branches.
    """
    if not connection.features.has_select_for_update:
        return
    no_key = connection.features.has_select_for_no_key_update
    rows = Branch.objects.select_for_update(no_key=no_key).filter(session_id=session_id)
    rows = rows.order_by("created_at", "pk")
    list(rows.values_list("pk", flat=True)[:1])
    if branch_ids:
        list(rows.filter(pk__in=branch_ids).values_list("pk", flat=True))


MAX_RESPONSE_ID_CHARS = 200


def append(
    branch: Branch,
    drafts: Sequence[NewMessage],
    *,
    client_key: str | None = None,
    edits: UUID | None = None,
    request_tokens: int | None = None,
    mark: SessionMark | None = None,
    beside: Beside | None = None,
) -> list[Message]:
    """Store messages at the branch's end and return the rows, in order.

    With `client_key` (an Idempotency-Key) the same call twice returns the rows of the first; what
    they take the place of (`edits`) makes another call of it. `request_tokens` is the size of the
    request that an answer answers (chatapp.titles.told_by). `mark` writes the session's row in the
    place of the usual UPDATE, and `beside` returns, for the rows, what else is stored; both stand
    in the same transaction, and what they raise stores nothing. Raises
    chatapp.messages.wire.InvalidMessageError before anything is written, KeyReusedError when the
    key belongs to other messages, NotStoredBesideError where `beside` may be what was refused.
    """
    if not drafts:
        return []
    model = model_of(branch.session)
    rows = [row_of(branch, draft, model.counter) for draft in drafts]
    if client_key:
        digest = digest_of(drafts, edits=edits)
        earlier = stored_under(branch.session_id, client_key, digest)
        if earlier:
            return earlier
        for index, row in enumerate(rows):
            row.client_key, row.client_index = client_key, index
            row.metadata = row.metadata | {"request_digest": digest}
    try:
        with files_only_if_stored(rows):
            told = told_by(
                rows, frame_tokens=model.message_frame_tokens, request_tokens=request_tokens
            )
            place_where_it_goes_on(branch, rows, Ending(told, mark or SessionMark(), beside))
    except BranchGoneError:
        raise SessionDeletedError from None
    except IntegrityError:
        if client_key and (earlier := stored_under(branch.session_id, client_key, digest)):
            return earlier
        if not Branch.objects.filter(pk=branch.pk).exists():
            raise SessionDeletedError from None
        raise
    return rows


def row_of(branch: Branch, draft: NewMessage, counter: ModelTokenCounter) -> Message:
    """Return the unsaved row of a draft: cleaned, counted, still without a place.

    Files of its parts are written here, before any transaction that stores it.
    """
    guarded = _guarded(draft)
    columns = fields_of(guarded)
    cleaner = Cleaner(replaced=columns["metadata"].get(REPLACED, 0))
    columns["reasoning"] = cleaner.text(draft.reasoning) or columns["reasoning"]
    columns["metadata"] |= cleaner.json(draft.metadata)
    row = Message(
        id=draft.key or new_id(),
        session_id=branch.session_id,
        branch=branch,
        kind=draft.kind,
        summary=cleaner.text(draft.summary),
        usage=cleaner.json(draft.usage),
        finish_reason=cleaner.text(draft.finish_reason)[:40],
        response_id=_fitting(cleaner.text(draft.response_id)),
        pinned=draft.pinned,
        created_at=draft.created_at or timezone.now(),
        **columns,
    )
    if cleaner.replaced:
        row.metadata[REPLACED] = cleaner.replaced
    if guarded is not draft.wire:
        _keep_whole(row, draft)
    keep_apart(row, counter)
    # What is stored is counted, not what came in: the two differ where text was replaced.
    if row.is_spoken:
        row.tokens = count_message(row.stored_wire(), counter)
    count_chars(row)
    return row


def _fitting(response_id: str) -> str:
    """Return a server's id if it can be stored whole: a cut one would name nothing."""
    return response_id if len(response_id) <= MAX_RESPONSE_ID_CHARS else ""


def _guarded(draft: NewMessage) -> Mapping[str, Any]:
    """Return the draft's message, cut by the backend where it is an enormous tool result."""
    if draft.wire.get("role") not in ("tool", "function"):
        return draft.wire
    guarded = context_backend.to_store(cast(WireMessage, dict(draft.wire)))
    return draft.wire if guarded == draft.wire else guarded


def _keep_whole(row: Message, draft: NewMessage) -> None:
    """Keep the whole of a result beside its row; `store_originals` writes it."""
    whole = fields_of(draft.wire)
    row.metadata[CUT_FROM] = len(whole["content"] or "")
    # The relation is known from both sides then, without a query.
    MessageOriginal(message=row, content=whole["content"] or "", parts=whole["parts"])


# Sent inside the transaction that moved positions: `session`, `moved` {old position: new position}.
positions_changed = Signal()

# Sent inside the transaction that put a message between others: `branches` whose path has it now,
# and `message`.
message_inserted = Signal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Where a row can be put behind another one: the sums up to that one, and what comes next.

    `before` is the next position that is occupied in any branch, None where none is; `head` is
    where the branch ends.
    """

    through: PathSums
    before: int | None
    head: int


def with_gap(rows: QuerySet[Message], branch_id: UUID, *, after: int) -> QuerySet[Any]:
    """Return the rows with what `gap_of` looks at, of the place behind a position.

    For who reads rows anyway. Call it under the session's lock and keep that until the insert.
    """
    head = Branch.objects.filter(pk=branch_id).values("head_position")
    branches = _next_in_branches(OuterRef("session_id"), after)
    return rows.annotate(
        gap_head=Subquery(head),
        gap_before=Subquery(
            branches.order_by(F("next_position").asc(nulls_last=True)).values("next_position")[:1]
        ),
    )


def gap_of(row: Any) -> Gap:
    """Return the place behind a row that was read by with_gap for its own position."""
    return Gap(through=PathSums.through(row), before=row.gap_before, head=row.gap_head)


def insert_between(
    branch: Branch, *, after: int, draft: NewMessage, gap: Gap | None = None
) -> Message:
    """Store one message right behind position `after` of the branch's path and return it.

    It takes the middle position. When no integer is left there, the positions of the session are
    renumbered first, in the same transaction (`positions_changed` tells who keeps positions).
    A placeholder may stand anywhere on the path; a message only behind the fork, because what is
    before it belongs to other branches too. Raises TranscriptError where `after` is no row's place;
    `gap` is the place, where the caller has read it under the same locks.
    """
    model = model_of(branch.session)
    row = row_of(branch, draft, model.counter)
    with files_only_if_stored([row]), transaction.atomic():
        lock_branches(branch.session_id)
        if gap is None:
            branch.refresh_from_db()
        else:
            branch.head_position = gap.head
        if row.is_spoken and after < (branch.fork_position or 0):
            raise TranscriptError("Other branches share this place; put it into its own branch.")
        through = sums_at(branch, after) if gap is None else gap.through
        if through is None:
            raise TranscriptError(f"No message of the branch stands at position {after}.")
        before = _next_position(branch, after) if gap is None else _end_of(gap)
        if before - after < 2:
            moved = renumber(branch.session)
            branch.refresh_from_db()
            after = moved.get(after, 0)
            before = _next_position(branch, after)
        row.position = (after + before) // 2
        through.plus(row)
        look_again([row])
        row.save(force_insert=True)
        store_originals([row])
        # append() goes on behind placeholders too, or two rows would meet.
        if branch.head_position < row.position:
            Branch.objects.filter(pk=branch.pk).update(head_position=row.position)
            branch.head_position = row.position
        if row.is_spoken:
            changed = add_behind(branch, row)
            Session.objects.filter(active_branch__in=changed).update(
                request_tokens=F("request_tokens") + row.tokens + model.message_frame_tokens
            )
            message_inserted.send(sender=Message, message=row, branches=changed)
    return row


def _next_position(branch: Branch, after: int) -> int:
    """Return the next position that is occupied in any branch, or the next that append() takes.

    The branch is told where it ends by now.
    """
    branches = _next_in_branches(branch.session_id, after)
    head = Max("head_position", filter=Q(pk=branch.pk))
    found = branches.aggregate(first=Min("next_position"), head=head)
    branch.head_position = found["head"] or 0
    position: int | None = found["first"]
    return position if position is not None else branch.head_position + POSITION_STEP


def _end_of(gap: Gap) -> int:
    return gap.before if gap.before is not None else gap.head + POSITION_STEP


def _next_in_branches(session_id: Any, after: int) -> QuerySet[Any]:
    """Return a session's branches with the next position that is occupied in each.

    Rows of a fork and of its parent share a path, so a middle must be free in all of them.
    """
    rows = Message.objects.filter(branch=OuterRef("pk"), position__gt=after).order_by("position")
    branches = Branch.objects.filter(session_id=session_id)
    return branches.annotate(next_position=Subquery(rows.values("position")[:1]))


def renumber(session: Session) -> dict[int, int]:
    """Give every position of the session its rank in whole steps; return {old: new}.

    One mapping for all branches keeps every order and every fork where it was.
    """
    rows = Message.objects.filter(session=session)
    branches = list(Branch.objects.filter(session=session))
    positions = set(rows.values_list("position", flat=True).distinct())
    positions |= {b.head_position for b in branches if b.head_position}
    positions |= {b.fork_position for b in branches if b.fork_position}
    moved = {old: rank * POSITION_STEP for rank, old in enumerate(sorted(positions), 1)}
    # Through the negative numbers, so that no two rows ever share a place on the way.
    batch = []
    for message in rows.only("id", "position").iterator(chunk_size=2000):
        message.position = -moved[message.position]
        batch.append(message)
    Message.objects.bulk_update(batch, ["position"], batch_size=500)
    rows.update(position=-F("position"))
    for branch in branches:
        branch.head_position = moved.get(branch.head_position, 0)
        branch.fork_position = moved.get(branch.fork_position or 0, branch.fork_position)
    Branch.objects.bulk_update(branches, ["head_position", "fork_position"])
    move_places(session.pk, moved)
    positions_changed.send(sender=Session, session=session, moved=moved)
    return moved


def set_pinned(message: Message, pinned: bool, *, by: Any = None) -> list[Message]:
    """Pin or unpin a message and, with it, all of its group; return the rows.

    A pinned message is always sent verbatim, also when a summary covers it. Rows that repeat them
    in replayed branches go along: a client may know only the older ids. `by` is the person who says
    so, for the session's audit log.
    """
    if not message.is_spoken:
        raise TranscriptError("A placeholder cannot be pinned: it only marks a summary's place.")
    with transaction.atomic():
        lock_branches(message.session_id)
        members = group_of(message)
        rows = [*members, *copies_of(members)]
        Message.objects.filter(pk__in=[row.pk for row in rows]).update(pinned=pinned)
        if by is not None:
            action = "pinned" if pinned else "unpinned"
            text = f"{plural(len(members), 'message')} {action}, at position {message.place}."
            record(message.session_id, action, text, by=by, branch=message.branch_id)
    for member in members:
        member.pinned = pinned
    return members


def digest_of(drafts: Sequence[NewMessage], *, edits: UUID | None = None) -> str:
    """Return what tells one body from another."""
    text = json.dumps([dict(draft.wire) for draft in drafts], sort_keys=True, default=str)
    if edits is not None:
        text += str(edits)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def stored_under(session_id: UUID, client_key: str, digest: str) -> list[Message]:
    """Return the messages that were stored under a key, in order; none where it is new.

    Raises KeyReusedError where the key belongs to another body.
    """
    rows = list(
        Message.objects.filter(session_id=session_id, client_key=client_key).order_by(
            "client_index"
        )
    )
    if rows and rows[0].metadata.get("request_digest") != digest:
        raise KeyReusedError(
            "This Idempotency-Key was used for other messages of the session. "
            "Send the same body again, or a new key with the new one."
        )
    return rows

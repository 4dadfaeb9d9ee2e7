"""Storing messages at a branch's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from chatapp.context import context_backend
from chatapp.drafts import Draft, SessionDeletedError
from chatapp.llm.tokens import TokenCounter, count_message
from chatapp.models import Branch, Message, MessageOriginal, Session
from chatapp.models.message import POSITION_STEP
from chatapp.repeats import digest_of, stored_under
from chatapp.selectors import counter_of
from chatapp.wire import CUT_FROM, REPLACED, Cleaner, fields_of

# Rows in one INSERT; requests are smaller, imported files may be larger.
INSERT_BATCH = 500
MAX_RESPONSE_ID_CHARS = 200


def append(
    branch: Branch, drafts: Sequence[Draft], *, client_key: str | None = None
) -> list[Message]:
    """Store messages at the branch's end and return the rows, in order.

    With `client_key` (an Idempotency-Key) the same call twice returns the rows of the first.
    Raises chatapp.wire.InvalidMessageError before anything is written, KeyReusedError when the key
    belongs to other messages.
    """
    if not drafts:
        return []
    counter = counter_of(branch.session)
    rows = [row_of(branch, draft, counter) for draft in drafts]
    if client_key:
        digest = digest_of(drafts)
        earlier = stored_under(branch.session_id, client_key, digest)
        if earlier:
            return earlier
        for index, row in enumerate(rows):
            row.client_key, row.client_index = client_key, index
            row.metadata = row.metadata | {"request_digest": digest}
    try:
        _place_where_it_goes_on(branch, rows)
    except IntegrityError:
        if client_key and (earlier := stored_under(branch.session_id, client_key, digest)):
            return earlier
        if not Branch.objects.filter(pk=branch.pk).exists():
            raise SessionDeletedError from None
        raise
    return rows


def row_of(branch: Branch, draft: Draft, counter: TokenCounter) -> Message:
    """Return the unsaved row of a draft: cleaned, with its tokens, still without a place."""
    guarded = _guarded(draft)
    columns = fields_of(guarded)
    cleaner = Cleaner(replaced=columns["metadata"].get(REPLACED, 0))
    columns["reasoning"] = cleaner.text(draft.reasoning) or columns["reasoning"]
    columns["metadata"] |= cleaner.json(draft.metadata)
    row = Message(
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
    # What is stored is counted, not what came in: the two differ where text was replaced.
    if row.kind == Message.Kind.MESSAGE:
        row.tokens = count_message(row.wire(), counter)
    return row


def _fitting(response_id: str) -> str:
    """Return a server's id if it can be stored whole: a cut one would name nothing."""
    return response_id if len(response_id) <= MAX_RESPONSE_ID_CHARS else ""


def _guarded(draft: Draft) -> Mapping[str, Any]:
    """Return the draft's message, cut by the backend where it is an enormous tool result."""
    if draft.wire.get("role") not in ("tool", "function"):
        return draft.wire
    guarded: dict[str, Any] = context_backend.to_store(dict(draft.wire))
    return draft.wire if guarded == draft.wire else guarded


def _keep_whole(row: Message, draft: Draft) -> None:
    """Keep the whole of a result beside its row; `store_originals` writes it."""
    whole = fields_of(draft.wire)
    row.metadata[CUT_FROM] = len(whole["content"] or "")
    # The relation is known from both sides then, without a query.
    MessageOriginal(message=row, content=whole["content"] or "", parts=whole["parts"])


def store_originals(rows: Sequence[Message]) -> None:
    """Write the whole texts of those rows that were cut when they were made."""
    cut = [row.original for row in rows if CUT_FROM in row.metadata]
    if cut:
        MessageOriginal.objects.bulk_create(cut)


class _ReplacedError(Exception):
    """The branch was replayed meanwhile; `by` is the one that goes on."""

    def __init__(self, by: Branch) -> None:
        super().__init__()
        self.by = by


def _place_where_it_goes_on(branch: Branch, rows: list[Message]) -> None:
    """Store the rows at the branch's end, or at that of the replay that took its place."""
    while True:
        try:
            with transaction.atomic():
                _place_at_end(branch, rows)
            return
        except _ReplacedError as replaced:
            branch = replaced.by
            for row in rows:
                row.branch = branch


def _mark_session(branch: Branch) -> None:
    """Say that the session changed.

    Raises _ReplacedError when the branch has been replayed since the caller looked which one is
    active: what is stored behind the old one would never be sent.
    """
    sessions = Session.objects.filter(pk=branch.session_id)
    if sessions.filter(active_branch=branch).update(updated_at=timezone.now()):
        return
    active = Branch.objects.filter(pk__in=sessions.values("active_branch")).first()
    current = active
    while current is not None and current.replaces is not None:
        current = current.replaces
        if active is not None and current.pk == branch.pk:
            raise _ReplacedError(active)
    sessions.update(updated_at=timezone.now())


def _place_at_end(branch: Branch, rows: list[Message]) -> None:
    counted = [row for row in rows if row.kind == Message.Kind.MESSAGE]
    _add_to_sums(
        branch,
        places=len(rows),
        messages=len(counted),
        tokens=sum(row.tokens for row in counted),
    )
    position = branch.head_position - len(rows) * POSITION_STEP
    through = branch.token_total - sum(row.tokens for row in counted)
    empty_so_far = branch.message_count == len(counted)
    for row in rows:
        position += POSITION_STEP
        through += row.tokens
        row.position, row.tokens_through = position, through
        # System messages that open a conversation are its rules: always sent, never summarised.
        empty_so_far = empty_so_far and row.role == Message.Role.SYSTEM
        row.pinned = row.pinned or (empty_so_far and row.kind == Message.Kind.MESSAGE)
    Message.objects.bulk_create(rows, batch_size=INSERT_BATCH)
    store_originals(rows)
    _mark_session(branch)


def _add_to_sums(branch: Branch, *, places: int, messages: int, tokens: int) -> None:
    """Move the branch's head and add to its sums; the object then holds what is stored.

    The UPDATE takes the row lock (or SQLite's write lock): a second writer queues up behind it.
    RETURNING, which the ORM has for no UPDATE, spares every append and every turn a second look.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE branches SET head_position = head_position + %s, "
            "message_count = message_count + %s, token_total = token_total + %s "
            "WHERE id = %s RETURNING head_position, message_count, token_total",
            [
                places * POSITION_STEP,
                messages,
                tokens,
                Branch._meta.pk.get_db_prep_value(branch.pk, connection),
            ],
        )
        found = cursor.fetchone()
    if found is None:
        raise SessionDeletedError
    branch.head_position, branch.message_count, branch.token_total = found

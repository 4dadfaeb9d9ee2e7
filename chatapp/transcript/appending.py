"""Storing messages at a branch's end."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from chatapp.drafts import Draft, SessionDeletedError
from chatapp.llm.tokens import TokenCounter, count_message
from chatapp.models import Branch, Message, Session
from chatapp.models.message import POSITION_STEP
from chatapp.repeats import digest_of, stored_under
from chatapp.selectors import counter_of
from chatapp.wire import REPLACED, Cleaner, fields_of

# Rows in one INSERT; requests are smaller, imported files may be larger.
INSERT_BATCH = 500


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
        with transaction.atomic():
            _place_at_end(branch, rows)
    except IntegrityError:
        if client_key and (earlier := stored_under(branch.session_id, client_key, digest)):
            return earlier
        if not Branch.objects.filter(pk=branch.pk).exists():
            raise SessionDeletedError from None
        raise
    return rows


def row_of(branch: Branch, draft: Draft, counter: TokenCounter) -> Message:
    """Return the unsaved row of a draft: cleaned, with its tokens, still without a place."""
    columns = fields_of(draft.wire)
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
        response_id=cleaner.text(draft.response_id)[:200],
        pinned=draft.pinned,
        created_at=draft.created_at or timezone.now(),
        **columns,
    )
    if cleaner.replaced:
        row.metadata[REPLACED] = cleaner.replaced
    # What is stored is counted, not what came in: the two differ where text was replaced.
    if row.kind == Message.Kind.MESSAGE:
        row.tokens = count_message(row.wire(), counter)
    return row


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
    Session.objects.filter(pk=branch.session_id).update(updated_at=timezone.now())


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

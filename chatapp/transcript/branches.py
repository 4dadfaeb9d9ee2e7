"""A session and the lines of its tree: the first, forks, replays; which one is active."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.db.models import QuerySet
from django.dispatch import Signal
from django.utils import timezone

from chatapp.audit import record
from chatapp.context.backend import Switched, context_backend
from chatapp.formatting import short_id
from chatapp.groups import parted_at
from chatapp.ids import new_id
from chatapp.llm.tokens import ModelTokenCounter, count_message
from chatapp.messages.wire import CUT_FROM, REPLAY_OF, fields_of
from chatapp.models import Branch, Message, Session
from chatapp.selectors import counter_of, messages_through, path_q, rows_before
from chatapp.transcript.part_files import bytes_of
from chatapp.transcript.request_size import prompt_tokens, whole_request
from chatapp.transcript.sums import PathSums, count_chars, set_totals
from chatapp.transcript.writing import TranscriptError, lock_branches, lock_some_branches

DELETE_ATTEMPTS = 3


def create_session(*, owner: Any, import_key: str | None = None, **fields: Any) -> Session:
    """Return a new session with its root branch, both or neither."""
    with transaction.atomic():
        session = Session(owner=owner, import_key=import_key, **fields)
        session.request_tokens = prompt_tokens(session)
        session.save(force_insert=True)
        branch = Branch.objects.create(session=session)
        session.active_branch = branch
        session.save(update_fields=["active_branch"])
    return session


def delete_session(session: Session) -> None:
    """Delete a session with everything that belongs to it, also while somebody works on it.

    Branches are locked before the session, in the order of append(). Rows of other apps may arrive
    between looking and deleting; then it looks again. Raises TranscriptError when that never ends.
    """
    for _ in range(DELETE_ATTEMPTS):
        try:
            with transaction.atomic():
                lock_branches(session.pk, for_deletion=True)
                # Deleting the row that was read keeps the caller's object as it is.
                for row in Session.objects.select_for_update().filter(pk=session.pk):
                    row.delete()
            return
        except (IntegrityError, OperationalError):
            continue
    raise TranscriptError("The session is being worked on. Wait for its turn to end, then delete.")


def fork(session: Session, *, at: Message, kind: str = Branch.Kind.FORK, label: str = "") -> Branch:
    """Return a new branch that shares the path up to and including message `at`.

    Raises TranscriptError when the message is not part of the session's conversation, or stands
    inside a call and its results, which may not be parted.
    """
    _refuse_strangers(session, at)
    _refuse_parted(parted_at(at))
    return _fork_behind(session, at, kind=kind, label=label)


def _fork_behind(session: Session, at: Message, *, kind: str, label: str) -> Branch:
    with transaction.atomic():
        lock_some_branches(session.pk, at.branch_id)
        at.refresh_from_db(fields=["position", "tokens_through", "chars_through"])
        return Branch.objects.create(
            session=session,
            parent=at.branch,
            fork_position=at.position,
            kind=kind,
            label=label,
            head_position=at.position,
            message_count=messages_through(at),
            token_total=at.tokens_through,
            char_total=at.chars_through,
        )


def fork_before(session: Session, *, at: Message, label: str = "") -> Branch:
    """Return a new branch that shares the path up to the message before `at`.

    Before the first message that is nothing: the branch is an empty line of its own. Raises
    TranscriptError as fork() does.
    """
    _refuse_strangers(session, at)
    _refuse_parted(parted_at(at, before=True))
    messages = Message.objects.filter(kind__in=Message.SPOKEN)
    before = next(iter(rows_before(at.branch, messages, end=at.position, most=1)), None)
    if before is not None:
        # On this path no group is parted, whatever the branch of `before` has behind it.
        return _fork_behind(session, before, kind=Branch.Kind.FORK, label=label)
    return Branch.objects.create(session=session, kind=Branch.Kind.FORK, label=label)


def _refuse_parted(parted: Sequence[Message]) -> None:
    """Refuse a fork that would part these, a call and its results: the first and the last."""
    if parted:
        raise TranscriptError(
            "A branch cannot start between a tool call and its results: fork before the call, "
            f"message {parted[0].pk}, or behind the last result, message {parted[-1].pk}."
        )


def _refuse_strangers(session: Session, at: Message) -> None:
    if at.session_id != session.pk or not at.is_spoken:
        raise TranscriptError("A branch can only start at a message of the same session.")


def set_label(branch: Branch, label: str) -> None:
    """Give a branch a name for people; empty for none."""
    branch.label = label
    Branch.objects.filter(pk=branch.pk).update(label=label)


def delete_unused(branch: Branch) -> None:
    """Delete a branch that was just made; one that somebody took up meanwhile stays."""
    with transaction.atomic():
        lock_branches(branch.session_id, for_deletion=True)
        rows = Branch.objects.filter(pk=branch.pk, messages=None, children=None)
        if not Session.objects.filter(active_branch=branch).exists() and rows.exists():
            branch.delete()


class SwitchRefusedError(TranscriptError):
    """The context backend does not let the session go on with another branch now."""


def switch(session: Session, branch: Branch, wishes: Mapping[str, Any] | None = None) -> Switched:
    """Let the context backend make `branch` the line the next turn goes on with.

    `wishes` are the backend's own but for `label`, which names the branch, and `requested_by`, the
    person whose act stands in the session's audit log. Raises TranscriptError for another session's
    branch, and SwitchRefusedError where the backend refuses; then nothing changes.
    """
    if branch.session_id != session.pk:
        raise TranscriptError("The branch belongs to another session.")
    wishes = wishes or {}
    label: str | None = wishes.get("label")
    old_id = session.active_branch_id
    done = context_backend.switch(
        session, branch, wishes, activate=partial(_go_on_in, session, branch, label)
    )
    done = done or Switched(branch=branch)
    by = wishes.get("requested_by")
    if by is not None and done.is_done and done.run is None and branch.pk != old_id:
        # A switch that a run does is told by the run's row.
        text = f"The session goes on with branch {short_id(branch.pk)}."
        record(session, "branch_switched", text, by=by, branch=branch)
    return done


def _go_on_in(session: Session, branch: Branch, label: str | None) -> Branch:
    old = activate(session, branch)
    if label is not None:
        set_label(branch, label)
    return old


def activate(session: Session, branch: Branch) -> Branch:
    """Make `branch` the line the next turn goes on with; return the one that was."""
    if branch.session_id != session.pk:
        raise TranscriptError("The branch belongs to another session.")
    old = session.branch
    Session.objects.filter(pk=session.pk).update(
        active_branch=branch,
        updated_at=timezone.now(),
        request_tokens=whole_request(session, branch),
    )
    session.active_branch = branch
    return old


BATCH = 500

# Sent inside the transaction that replayed a branch: `replay`, a Replay.
branch_replayed = Signal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What was replayed: `ids` maps every repeated row, placeholders included, to its new row."""

    old: Branch
    new: Branch
    ids: Mapping[UUID, UUID]


def replay(session: Session, *, contents: Mapping[UUID, Any]) -> Replay:
    """Repeat the active branch with other contents for some messages, and make that the active one.

    `contents` maps message ids to wire contents (a text or a list of parts, which may be kept
    apart as they are stored). The new branch forks
    behind the last message before the first of them; what follows is stored again at the same
    positions, so that cursors and the order stay. Raises TranscriptError when another branch became
    active or a message is not on its path.
    """
    old = session.branch
    with transaction.atomic():
        lock_branches(session.pk)
        old.refresh_from_db()
        still = Session.objects.filter(pk=session.pk, active_branch=old).exists()
        path = Message.objects.filter(path_q(old)).order_by("position", "id")
        changed = path.filter(pk__in=list(contents), kind__in=Message.SPOKEN)
        first = changed.first()
        if not still or first is None or changed.count() != len(contents):
            raise TranscriptError("The conversation went on in another branch meanwhile.")
        new = _start(session, old, first)
        # What follows the fork, and marks that the old branch had put before it.
        missing = path.exclude(path_q(new))
        ids = _repeat(missing, new, contents, counter_of(session))
        found = Replay(old=old, new=new, ids=ids)
        branch_replayed.send(sender=Branch, replay=found)
        activate(session, new)
    new.session = session
    return found


def _start(session: Session, old: Branch, first: Message) -> Branch:
    """Return the new branch without messages: at the root where nothing stands before the first."""
    messages = Message.objects.filter(kind__in=Message.SPOKEN)
    before = next(iter(rows_before(old, messages, end=first.position, most=1)), None)
    return Branch.objects.create(
        session=session,
        parent=before.branch if before else None,
        fork_position=before.position if before else None,
        kind=Branch.Kind.REPLAY,
        label=old.label,
        replaces=old,
        head_position=old.head_position,
        message_count=old.message_count,
        token_total=before.tokens_through if before else 0,
        char_total=before.chars_through if before else 0,
    )


def _repeat(
    rows: QuerySet[Message], new: Branch, contents: Mapping[UUID, Any], counter: ModelTokenCounter
) -> dict[UUID, UUID]:
    """Store the rows again in the new branch and add them to its sums."""
    ids: dict[UUID, UUID] = {}
    batch: list[Message] = []
    sums = PathSums.whole(new)
    for row in _copies(rows.iterator(chunk_size=BATCH), new, contents, counter, ids):
        if row.position > (new.fork_position or 0):
            sums = sums.plus(row)
        batch.append(row)
        if len(batch) == BATCH:
            Message.objects.bulk_create(batch)
            batch = []
    Message.objects.bulk_create(batch)
    set_totals(new, sums)
    new.save(update_fields=["token_total", "char_total"])
    return ids


def _copies(
    rows: Iterator[Message],
    new: Branch,
    contents: Mapping[UUID, Any],
    counter: ModelTokenCounter,
    ids: dict[UUID, UUID],
) -> Iterator[Message]:
    for row in rows:
        old_id = row.pk
        row.pk = ids[old_id] = new_id()
        row._state.adding = True
        row.branch = new
        # A key names what a client sent, which is the old row.
        row.client_key, row.client_index = None, 0
        row.metadata = row.metadata | {REPLAY_OF: str(old_id)}
        if old_id in contents:
            whole = len(row.content or "")
            sent = row.stored_wire() | {"content": contents[old_id]}
            columns = fields_of(sent, is_stored=True)
            row.content, row.parts = columns["content"], columns["parts"]
            row.parts_bytes = bytes_of(row.parts)
            row.metadata.setdefault(CUT_FROM, whole)
            row.tokens = count_message(row.stored_wire(), counter)
            count_chars(row)
        yield row


def point_placeholder(placeholder: Message, summary_id: str) -> None:
    """Have a replayed placeholder name the copy of its summary."""
    placeholder.metadata = placeholder.metadata | {"summary_id": summary_id}
    placeholder.save(update_fields=["metadata"])

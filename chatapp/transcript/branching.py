"""Lines of a conversation: forking one, changing to one."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from chatapp.drafts import TranscriptError
from chatapp.models import Branch, Message, Session
from chatapp.selectors import group_of, path_q
from chatapp.transcript.locking import lock_branches


def fork(session: Session, *, at: Message, kind: str = Branch.Kind.FORK) -> Branch:
    """Return a new branch that shares the path up to and including message `at`.

    Raises TranscriptError when the message is not part of the session's conversation, or stands
    inside a call and its results, which may not be parted.
    """
    if at.session_id != session.pk or at.kind != Message.Kind.MESSAGE:
        raise TranscriptError("A branch can only start at a message of the same session.")
    members = group_of(at)
    if members[-1].pk != at.pk:
        raise TranscriptError(
            "A branch cannot start between a tool call and its results: "
            f"fork at the last of them, message {members[-1].pk}."
        )
    with transaction.atomic():
        lock_branches(session.pk)
        at.refresh_from_db(fields=["position", "tokens_through"])
        return Branch.objects.create(
            session=session,
            parent=at.branch,
            fork_position=at.position,
            kind=kind,
            head_position=at.position,
            message_count=Message.objects.filter(
                path_q(at.branch), position__lte=at.position, kind=Message.Kind.MESSAGE
            ).count(),
            token_total=at.tokens_through,
        )


def activate(session: Session, branch: Branch) -> Branch:
    """Make `branch` the line the next turn goes on with; return the one that was."""
    if branch.session_id != session.pk:
        raise TranscriptError("The branch belongs to another session.")
    old: Branch = session.branch
    Session.objects.filter(pk=session.pk).update(active_branch=branch, updated_at=timezone.now())
    session.active_branch = branch
    return old

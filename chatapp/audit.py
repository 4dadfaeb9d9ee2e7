"""The audit log of sessions: what a person did to a session, who, and when.

An entry is written in the transaction of what it tells of, or right after it, and says nothing that
quotes a conversation: ids and numbers alone. What is done by itself has rows of its own elsewhere.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import new_id, short_id

# A program may pin and unpin without end: of one session so many of the newest entries stay.
MOST_ENTRIES = 1000
MOST_TEXT_CHARS = 500
MOST_ACTION_CHARS = 40
# What ends by a rule, and not by a person, whose entry may lack its name as well.
_BY_A_RULE = frozenset({"hold_broken"})


class AuditEntry(models.Model):
    """One thing that a person did to a session; without `actor`, something that ended such a thing.

    `action` is a code, `text` the sentence that says what was done. It goes with its session; an
    actor who is erased leaves entries of others' sessions without a name.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # An index begins with it: it needs none of its own.
    session = models.ForeignKey(
        "chatapp.Session",
        on_delete=models.CASCADE,
        db_index=False,
        related_name="audit_entries",
    )
    branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
    )
    action = models.CharField(max_length=MOST_ACTION_CHARS)
    text = models.CharField(max_length=MOST_TEXT_CHARS)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        app_label = "chatapp"
        db_table = "audit_entries"
        verbose_name_plural = "audit entries"
        indexes = [
            # A session's timeline, newest first; and the entry that is one too many.
            models.Index(fields=["session", "-created_at", "-id"], name="audit_of_session"),
            # The admin's list, newest first.
            models.Index(fields=["-created_at", "-id"], name="audit_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.title} ({short_id(self.id)})"

    @property
    def is_by_rule(self) -> bool:
        """Whether a rule did it, and nobody."""
        return self.action in _BY_A_RULE

    @property
    def title(self) -> str:
        """What was done, in a few words."""
        return title_of(self.action)


def record(
    session: Any,
    action: str,
    text: str,
    *,
    by: Any = None,
    branch: Any = None,
) -> AuditEntry:
    """Store that a person did something to a session, and forget what is older than the newest.

    `session` and `branch` are rows or ids. `by` is the user; what is no stored user (a command)
    counts as nobody.
    """
    session_id = getattr(session, "pk", session)
    entry = AuditEntry.objects.create(
        session_id=session_id,
        branch_id=getattr(branch, "pk", branch),
        actor_id=getattr(by, "pk", None),
        action=action[:MOST_ACTION_CHARS],
        text=text[:MOST_TEXT_CHARS],
    )
    entries = AuditEntry.objects.filter(session=session_id)
    newest_first = entries.order_by("-created_at", "-id").values_list("created_at", flat=True)
    too_old = next(iter(newest_first[MOST_ENTRIES : MOST_ENTRIES + 1]), None)
    if too_old is not None:
        entries.filter(created_at__lte=too_old).delete()
    return entry


def title_of(action: str) -> str:
    """Return what an action's code is called for people: Hold lifted."""
    return action.replace("_", " ").capitalize()


def name_of(user: Any) -> str:
    """Return how a person is called where it is said who did something; empty for nobody."""
    return "" if user is None else str(user.get_username())

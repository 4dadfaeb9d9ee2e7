"""Summaries and their links: the first two of the three layers (the placeholder message is the
third).
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import new_id, short_id
from compaction.engine.policy.reasons import Reason
from compaction.engine.rendering import with_files

FORMAT_VERSION = 1
# A summary that holds what those before it held: they are not sent beside it any more. Its clauses
# were chosen from all covered messages (docs/decisions/0027-a-ledger-beside-the-prose.md).
HOLDS_EARLIER_VERSION = 2
# One of those whose files are sent behind its text, which `summary_tokens` counts in.
SENDS_FILES_VERSION = 3
FORMAT_VERSIONS = (FORMAT_VERSION, HOLDS_EARLIER_VERSION, SENDS_FILES_VERSION)
NEWEST_VERSION = max(FORMAT_VERSIONS)
"""A row of a newer one was written by a later program and is passed over: nobody here can say what
it means, so what it covers counts as not summarised."""

INSTRUCTED = models.Q(instructions__gt="")
"""Summaries with a person's instructions; there are few."""

DROPPED_MESSAGES = "dropped_messages"
"""In the metadata: how many messages the profile had dropped, unread, before those of the text."""


class SessionSummary(models.Model):
    """One stored summary: text, how it was asked for, the exact reason, coverage, cost, status.

    Linked messages are exactly those that the summariser received
    (docs/architecture.md#a-cursor-moves-only-over-what-was-read). `previous` is the summary whose
    text was an input of this one. Only `active` summaries are sent.

    `author` is the person who wrote the text; None where a program did, or the person is gone.
    `activated_at`, `superseded_at` and `restored_at` say when it got each status last, `updated_at`
    when its status changed last; None where nobody noted it.
    """

    class Kind(models.TextChoices):
        """What was summarised."""

        COMPACTION = "compaction", "Compaction"
        BRANCH = "branch", "Branch"

    class Status(models.TextChoices):
        """Whether it counts."""

        DRAFT = "draft", "Draft"
        ACTIVE = "active", "Active"
        SUPERSEDED = "superseded", "Superseded"
        RESTORED = "restored", "Restored"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(
        "chatapp.Session",
        on_delete=models.CASCADE,
        related_name="summaries",
        # summary_of_session begins with it.
        db_index=False,
    )
    # With an index of its own: those of the branch below hold active summaries alone, and whoever
    # deletes a branch asks for all.
    branch = models.ForeignKey("chatapp.Branch", on_delete=models.CASCADE, related_name="summaries")
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.COMPACTION)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.ACTIVE)
    format_version = models.PositiveSmallIntegerField(default=FORMAT_VERSION)
    summary_text = models.TextField()
    summary_prompt = models.TextField(blank=True)
    prompt_version = models.CharField(max_length=40, blank=True)
    model = models.CharField(max_length=100, blank=True)
    temperature = models.FloatField(null=True, blank=True)
    target_summary_tokens = models.PositiveIntegerField(default=0)
    keep_last_n = models.PositiveIntegerField(default=0)
    message_count = models.PositiveIntegerField(default=0)
    approx_tokens = models.BigIntegerField(default=0)
    summary_tokens = models.PositiveIntegerField(default=0)
    first_message = models.ForeignKey(
        "chatapp.Message", on_delete=models.SET_NULL, null=True, related_name="+"
    )
    last_message = models.ForeignKey(
        "chatapp.Message", on_delete=models.SET_NULL, null=True, related_name="+"
    )
    first_message_created_at = models.DateTimeField(null=True, blank=True)
    last_message_created_at = models.DateTimeField(null=True, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    trigger = models.CharField(max_length=14)
    reason = models.CharField(max_length=40)
    truncated = models.BooleanField(default=False)
    # Made of the messages themselves because no summariser answered; it can be re-summarised.
    is_digest = models.BooleanField(default=False, db_default=False)
    compression_ratio = models.FloatField(default=0.0)
    previous = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="updates"
    )
    supersedes = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="newer_versions"
    )
    covers_from = models.BigIntegerField()
    covers_through = models.BigIntegerField()
    tokens_before = models.BigIntegerField(default=0)
    tokens_after = models.BigIntegerField(default=0)
    cost = models.FloatField(default=0.0)
    files_read = models.JSONField(default=list, blank=True)
    files_modified = models.JSONField(default=list, blank=True)
    files_created = models.JSONField(default=list, db_default=[], blank=True)
    files_deleted = models.JSONField(default=list, db_default=[], blank=True)
    # Of a branch's summary: the branch that was left, and its last message then.
    from_branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    from_message = models.ForeignKey(
        "chatapp.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    # A hook wrote it; `details` is what the hook keeps with it, which nobody else reads.
    from_hook = models.BooleanField(default=False, db_default=False)
    details = models.JSONField(default=dict, db_default={}, blank=True)
    abridged = models.TextField(blank=True)
    # What `abridged` was made of: the next summary's is made of these and of what is new.
    abridged_entries = models.JSONField(default=list, db_default=[], blank=True)
    # The prompt of the first answer behind the summary, as its server reported it: what stood in a
    # prompt cache, and what did not. NULL: no such answer came yet.
    next_cached_tokens = models.BigIntegerField(null=True, blank=True, editable=False)
    next_uncached_tokens = models.BigIntegerField(null=True, blank=True, editable=False)
    instructions = models.TextField(blank=True)
    # Whose instructions these are: later summaries of the same messages carry them on.
    instructions_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
    )
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    run = models.ForeignKey(
        "compaction.CompactionRun", on_delete=models.SET_NULL, null=True, related_name="summaries"
    )
    profile = models.ForeignKey(
        "compaction.CompactionProfile", on_delete=models.PROTECT, null=True, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    # NULL where it is unknown: rows from before these columns, and imported ones.
    updated_at = models.DateTimeField(null=True, blank=True, editable=False)
    activated_at = models.DateTimeField(null=True, blank=True, editable=False)
    superseded_at = models.DateTimeField(null=True, blank=True, editable=False)
    restored_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "session_summaries"
        verbose_name_plural = "session summaries"
        constraints = [
            # Two workers can never store two active summaries of one stretch.
            models.UniqueConstraint(
                fields=["branch", "covers_through"],
                condition=models.Q(status="active", kind="compaction"),
                name="summary_covers_once",
            ),
        ]
        indexes = [
            # Before every request: the newest active summaries of a branch.
            models.Index(
                fields=["branch", "-covers_through"],
                condition=models.Q(status="active"),
                name="summary_active",
            ),
            # The same for a deep fork: the session's newest are tested one by one.
            models.Index(
                fields=["session", "-covers_through"],
                condition=models.Q(status="active"),
                name="summary_active_session",
            ),
            # Before every request: whether a branch has a fallback digest that no summary has taken
            # in.
            models.Index(
                fields=["branch", "-covers_through"],
                condition=models.Q(status="active", is_digest=True),
                name="summary_digest",
            ),
            # Whenever a branch's state is read: whether a later program wrote any of its session's.
            models.Index(
                fields=["session"],
                condition=models.Q(status="active", format_version__gt=NEWEST_VERSION),
                name="summary_of_later_program",
            ),
            # Whenever a run reads a branch's state: whether there are instructions to carry on.
            models.Index(fields=["session"], condition=INSTRUCTED, name="summary_instructed"),
            # GET sessions/{id}/summaries/, newest first.
            models.Index(fields=["session", "-created_at", "-id"], name="summary_of_session"),
            # The admin's list and its filters.
            models.Index(fields=["-created_at", "-id"], name="summary_newest"),
            models.Index(fields=["compression_ratio"], name="summary_ratio"),
        ]

    def __str__(self) -> str:
        return f"Summary {short_id(self.id)} ({self.status})"

    @property
    def is_edited(self) -> bool:
        """Whether a person wrote the text; so it is where the author is not known any more."""
        return self.reason == Reason.EDITED

    @property
    def is_passed_over(self) -> bool:
        """Whether a later program wrote it, in a form that this one does not know."""
        return self.format_version > NEWEST_VERSION

    @property
    def dropped_messages(self) -> int:
        """How many messages before those that it was made from nobody read (head_overflow)."""
        found = self.metadata.get(DROPPED_MESSAGES)
        return found if isinstance(found, int) and found > 0 else 0

    @property
    def sent_text(self) -> str:
        """The text as requests hold it: where that is wanted, with its files behind it."""
        if self.format_version < SENDS_FILES_VERSION:
            return self.summary_text
        return with_files(
            self.summary_text,
            read=self.files_read,
            modified=self.files_modified,
            deleted=self.files_deleted,
        )


_SINCE = {
    SessionSummary.Status.ACTIVE: "activated_at",
    SessionSummary.Status.SUPERSEDED: "superseded_at",
    SessionSummary.Status.RESTORED: "restored_at",
}
"""The column that says since when a summary has a status."""


def status_columns(status: SessionSummary.Status) -> dict[str, Any]:
    """Return the columns of an UPDATE that gives summaries a status, and says when they got it.

    By the clock of `created_at`: which summary was made while which version counted is told by it.
    """
    now = timezone.now()
    columns: dict[str, Any] = {"status": status, "updated_at": now}
    return columns | ({_SINCE[status]: now} if status in _SINCE else {})


class SessionSummaryMessage(models.Model):
    """One message that the summariser received for one summary."""

    summary = models.ForeignKey(
        "compaction.SessionSummary",
        on_delete=models.CASCADE,
        related_name="links",
        # link_once begins with it.
        db_index=False,
    )
    message = models.ForeignKey(
        "chatapp.Message", on_delete=models.CASCADE, related_name="summary_links"
    )

    class Meta:
        db_table = "session_summary_messages"
        verbose_name = "summary source"
        constraints = [
            # A message is a source once; also the index that reads a summary's sources.
            models.UniqueConstraint(fields=["summary", "message"], name="link_once"),
        ]

    def __str__(self) -> str:
        return f"{short_id(self.message_id)} in {short_id(self.summary_id)}"

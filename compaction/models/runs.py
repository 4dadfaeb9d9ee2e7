"""Runs, their steps, and the recovery steps of turns: every attempt is a row."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import new_id, short_id


class CompactionRun(models.Model):
    """One attempt to compact a branch. Created queued; claimed by one worker; never deleted.

    `trigger` is the kind of start (proactive, overflow_retry, manual, resummarize, branch);
    `reason` is the exact rule. `error` is a sentence; `error_code` is for programs. `restarts`
    counts how often a run of this kind was started again after a worker died.
    """

    class Status(models.TextChoices):
        """The life of a run."""

        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        SUCCEEDED = "succeeded", "Succeeded"
        SKIPPED = "skipped", "Skipped"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    class Trigger(models.TextChoices):
        """What started it."""

        PROACTIVE = "proactive", "Threshold"
        OVERFLOW_RETRY = "overflow_retry", "Overflow"
        MANUAL = "manual", "By hand"
        RESUMMARIZE = "resummarize", "Re-summarise"
        BRANCH = "branch", "Branch switch"

    AUTOMATIC = (Trigger.PROACTIVE, Trigger.OVERFLOW_RETRY)
    """Triggers of runs that nobody asked for by hand; after a failed one, others wait."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(
        "chatapp.Session",
        on_delete=models.CASCADE,
        related_name="runs",
        # run_of_session begins with it.
        db_index=False,
    )
    branch = models.ForeignKey(
        "chatapp.Branch",
        on_delete=models.CASCADE,
        related_name="runs",
        # run_of_branch begins with it.
        db_index=False,
    )
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.QUEUED)
    trigger = models.CharField(max_length=14, choices=Trigger.choices)
    reason = models.CharField(max_length=40)
    mode = models.CharField(
        max_length=10, choices=[("inline", "Inline"), ("background", "Background")]
    )
    profile = models.ForeignKey(
        "compaction.CompactionProfile",
        on_delete=models.PROTECT,
        related_name="runs",
        # run_of_profile begins with it.
        db_index=False,
    )
    instructions = models.TextField(blank=True)
    # Those of earlier summaries of its messages, which it followed where it had none of its own.
    carried_instructions = models.TextField(blank=True, default="", db_default="")
    keep_last_n = models.PositiveIntegerField(null=True, blank=True)
    # Tool results were read up to so many characters; NULL: whole. The step's page cuts the same.
    result_chars = models.PositiveIntegerField(null=True, blank=True)
    replaces = models.ForeignKey(
        "compaction.SessionSummary",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="replacing_runs",
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    # A switch with a summary: the branch that becomes active, its new label (NULL: as it is), and
    # whether the instructions take the place of ours.
    switch_to = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    switch_label = models.TextField(null=True, blank=True)
    replaces_instructions = models.BooleanField(default=False, db_default=False)
    worker = models.UUIDField(null=True, blank=True, editable=False)
    restarts = models.PositiveSmallIntegerField(default=0)
    tokens_before = models.BigIntegerField(null=True, blank=True)
    tokens_after = models.BigIntegerField(null=True, blank=True)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    chunk_count = models.PositiveIntegerField(default=0)
    max_depth = models.PositiveIntegerField(default=0)
    model_calls = models.PositiveIntegerField(default=0)
    # Tokens in and out of all calls of a language model, failed ones too: what a budget limits.
    # An input that was too large was read by nobody and counts as one.
    # The database knows the default, too: processes of the version before may still insert.
    spent_tokens = models.BigIntegerField(default=0, db_default=0)
    # The prompts of those calls, as their servers reported them: what stood in a prompt cache, and
    # what did not.
    cached_tokens = models.BigIntegerField(default=0, db_default=0)
    uncached_tokens = models.BigIntegerField(default=0, db_default=0)
    truncated = models.BooleanField(default=False)
    cost = models.FloatField(default=0.0)
    error_code = models.CharField(max_length=40, blank=True)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    # A queued run that waits for something else than the queue; `error` says for what.
    waits_until = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    # While a worker has the run: whether its instructions are those of earlier summaries, and the
    # id of the user whose they are.
    carries_on: bool = False
    carries_from: Any = None
    # Whether it summarised what a person held, because the window forced it.
    broke_hold: bool = False

    class Meta:
        db_table = "compaction_runs"
        constraints = [
            # A branch waits for one automatic run at most; a second trigger changes nothing.
            models.UniqueConstraint(
                fields=["branch"],
                condition=models.Q(status="queued", trigger="proactive"),
                name="run_queued_once",
            ),
        ]
        indexes = [
            # The admin's list, and the runs of one session, newest first.
            models.Index(fields=["-created_at", "-id"], name="run_newest"),
            models.Index(fields=["session", "-created_at"], name="run_of_session"),
            # What needs a look: whether a run came after one of the same branch.
            models.Index(fields=["branch", "-created_at"], name="run_of_branch"),
            # The page of a profile's version: its newest runs.
            models.Index(fields=["profile", "-created_at", "-id"], name="run_of_profile"),
            # Before a run: what the last hour's runs of a session or an owner have spent.
            models.Index(
                fields=["started_at"],
                condition=models.Q(spent_tokens__gt=0),
                name="run_spent",
            ),
            # The sweep: what waits or works.
            models.Index(
                fields=["status", "created_at"],
                condition=models.Q(status__in=["queued", "running"]),
                name="run_unfinished",
            ),
            # What needs a look: the newest runs that failed, and those that left parts out.
            models.Index(
                fields=["-finished_at", "branch"],
                condition=models.Q(status="failed"),
                name="run_failed",
            ),
            models.Index(
                fields=["-finished_at", "branch"],
                condition=models.Q(status="succeeded", truncated=True),
                name="run_truncated",
            ),
        ]

    def __str__(self) -> str:
        return f"Run {short_id(self.id)} ({self.status})"

    @property
    def is_finished(self) -> bool:
        """Whether nothing will happen to the run any more."""
        return self.status not in (self.Status.QUEUED, self.Status.RUNNING)

    @property
    def prompt_tokens(self) -> int:
        """The prompts of its calls as their servers reported them; 0 where none did."""
        return self.cached_tokens + self.uncached_tokens

    @property
    def ratio(self) -> float | None:
        """Output over input tokens of the summary; None before there is one."""
        return self.output_tokens / self.input_tokens if self.input_tokens else None


class CompactionStep(models.Model):
    """One call of the summariser inside a run. The steps of a run are a tree.

    `kind` is the strategy's word for what was asked: `chunk`, `merge`, or another one. The input is
    stored where it is not stored already: `prompt` is the instruction as it was sent (empty where
    sentences were chosen), `texts` the summary that a chunk continues, or the two that a merge
    joins. The messages of a chunk are those from `first_message` to `last_message`.
    """

    class Outcome(models.TextChoices):
        """How the call ended."""

        OK = "ok", "OK"
        OVERFLOW = "overflow", "Too large"
        TRUNCATED = "truncated", "Cut off"
        REJECTED = "rejected", "Rejected"
        ERROR = "error", "Error"

    run = models.ForeignKey(
        CompactionRun,
        on_delete=models.CASCADE,
        related_name="steps",
        # step_order begins with it.
        db_index=False,
    )
    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="children"
    )
    kind = models.CharField(max_length=40)
    depth = models.PositiveSmallIntegerField(default=0)
    order = models.PositiveIntegerField()
    first_message = models.ForeignKey(
        "chatapp.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    last_message = models.ForeignKey(
        "chatapp.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    message_count = models.PositiveIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    # Those of the input that the server had in its prompt cache.
    cached_tokens = models.BigIntegerField(default=0, db_default=0)
    outcome = models.CharField(max_length=9, choices=Outcome.choices)
    duration_ms = models.PositiveIntegerField(default=0)
    # Why an answer was rejected, for programs; `error` is the sentence. The database knows the
    # default, too: processes of the version before may still insert.
    code = models.CharField(max_length=40, blank=True, default="", db_default="")
    # How the input was written beside its messages and texts (compaction.runs.steps).
    given = models.JSONField(null=True, blank=True)
    error = models.TextField(blank=True)
    output = models.TextField(blank=True)
    prompt = models.TextField(blank=True)
    texts = models.JSONField(default=list, blank=True)
    model = models.CharField(max_length=100, blank=True)
    cost = models.FloatField(default=0.0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "compaction_steps"
        constraints = [
            # A run's steps in the order of the calls.
            models.UniqueConstraint(fields=["run", "order"], name="step_order"),
        ]
        indexes = [
            # /metrics: the few rejected answers by their reason.
            models.Index(
                fields=["code"], condition=models.Q(outcome="rejected"), name="step_rejected"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.order} ({self.outcome})"


class RecoveryStep(models.Model):
    """One step of the recovery (engine/recovery.py). The steps of one turn share `recovery`.

    `error` is what the server had said; `observed` and `allowed` are the numbers in it. Tokens are
    those of the request before and after. `replay` is the branch with shortened tool results.
    """

    class Action(models.TextChoices):
        """What was tried."""

        COMPACT = "compact", "Compaction"
        TRUNCATE = "truncate", "Tool results cut"
        HALVE = "halve", "Fewer messages sent"
        GIVE_UP = "give_up", "Nothing left to try"

    class Outcome(models.TextChoices):
        """Whether the request became smaller."""

        SMALLER = "smaller", "Smaller"
        NO_HELP = "no_help", "No help"
        FAILED = "failed", "Failed"

    recovery = models.UUIDField(editable=False)
    order = models.PositiveSmallIntegerField()
    session = models.ForeignKey(
        "chatapp.Session",
        on_delete=models.CASCADE,
        related_name="recovery_steps",
        # recovery_of_session begins with it.
        db_index=False,
    )
    branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.CASCADE, related_name="recovery_steps"
    )
    run = models.ForeignKey(
        "compaction.CompactionRun",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="recovery_steps",
    )
    replay = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    action = models.CharField(max_length=8, choices=Action.choices)
    outcome = models.CharField(max_length=7, choices=Outcome.choices)
    text = models.TextField(blank=True)
    error_kind = models.CharField(max_length=40)
    error = models.TextField(blank=True)
    observed = models.BigIntegerField(null=True, blank=True)
    allowed = models.BigIntegerField(null=True, blank=True)
    tokens_before = models.BigIntegerField(default=0)
    tokens_after = models.BigIntegerField(default=0)
    groups = models.PositiveIntegerField(null=True, blank=True)
    results_cut = models.PositiveIntegerField(default=0)
    characters_cut = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "recovery_steps"
        constraints = [
            # The recovery of one turn, in the order in which it was climbed.
            models.UniqueConstraint(fields=["recovery", "order"], name="recovery_step_order"),
        ]
        indexes = [
            # A session's timeline, newest first.
            models.Index(fields=["session", "-created_at", "-id"], name="recovery_of_session"),
        ]

    def __str__(self) -> str:
        return f"{self.get_action_display()} ({self.outcome})"

"""What watches over many processes: circuit breakers, heartbeats, totals, figures, look marks."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import short_id


class ModelBreaker(models.Model):
    """One row a model alias whose calls have failed (limits/circuit_breaker.py).

    Closed while `opened_at` is empty. Open, runs wait until `retry_at`; then one of them, `probe`,
    makes a call, and its outcome closes the breaker or opens it for longer. Beside that, since when
    and why compactions by the model fail (runs/failing.py), whatever their calls come to.
    """

    model = models.CharField(max_length=100, primary_key=True)
    failures = models.PositiveIntegerField(default=0, help_text="Failed calls in a row.")
    opened_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True)
    probe = models.UUIDField(
        null=True, blank=True, editable=False, help_text="The worker whose call decides."
    )
    last_error = models.TextField(blank=True)
    changed_at = models.DateTimeField(default=timezone.now)
    failing_since = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Since when compactions by the model fail; empty while they succeed.",
    )
    failing_code = models.CharField(max_length=80, blank=True, default="", db_default="")
    failing_run = models.UUIDField(
        null=True, blank=True, editable=False, help_text="The last run that failed."
    )

    class Meta:
        db_table = "compaction_breakers"
        ordering = ["model"]

    def __str__(self) -> str:
        return f"{self.model} ({self.state})"

    @property
    def state(self) -> str:
        """`closed`, `open`, or `probing` while one call tries again."""
        if self.opened_at is None:
            return "closed"
        return "probing" if self.probe is not None else "open"


class WorkerHeartbeat(models.Model):
    """One process that compacts. It writes `beat_at` while it works (runs/heartbeat.py).

    A lease says who may write; a heartbeat says who lives, so that an operator sees which machine
    fell silent, and `/readyz` whether a queue cluster runs at all.
    """

    class Kind(models.TextChoices):
        """What kind of process it is."""

        QUEUE = "queue", "Queue"
        WEB = "web", "Web"
        COMMAND = "command", "Command"

    id = models.UUIDField(primary_key=True, editable=False)
    kind = models.CharField(max_length=7, choices=Kind.choices)
    host = models.CharField(max_length=100)
    pid = models.PositiveIntegerField()
    run = models.ForeignKey(
        "compaction.CompactionRun",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="What it works on; empty while it is idle.",
    )
    started_at = models.DateTimeField(default=timezone.now, editable=False)
    beat_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "compaction_workers"
        ordering = ["-beat_at"]
        indexes = [
            # /readyz: the newest sign of life of a kind. The sweep reads all of the few rows.
            models.Index(fields=["kind", "-beat_at"], name="worker_beat"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} process {self.pid} on {self.host}"


class RunTotals(models.Model):
    """How many runs ended in one way for one reason, with their seconds and saved tokens.

    Added to when a run ends (statistics/totals.py), so that a scrape reads a few rows however many
    runs there are. Workers that end runs at once would wait for each other's row: a kind has rows
    by `slot`, each end adds to one of them by chance, and what is read is their sum. The runs
    themselves stay the truth.
    """

    status = models.CharField(max_length=9)
    reason = models.CharField(max_length=40)
    mode = models.CharField(max_length=10)
    slot = models.PositiveSmallIntegerField(default=0, db_default=0, editable=False)
    runs = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)
    tokens_saved = models.BigIntegerField(default=0)

    class Meta:
        db_table = "compaction_run_totals"
        verbose_name_plural = "run totals"
        constraints = [
            # Two processes that end the first runs of a kind at once add to one row.
            models.UniqueConstraint(
                fields=["status", "reason", "mode", "slot"], name="run_totals_kind"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.status}, {self.reason}, {self.mode}: {self.runs:,}"


class DailyFigures(models.Model):
    """One day of UTC, rolled up by statistics/daily.py; a row can always be worked out again.

    Runs count on the day they were requested, under the status they have now; `unfinished` are
    queued or running, so a day with such runs is rolled up again. `ratios` counts the day's
    summaries by compression ratio in steps of ratios.RATIO_STEP. `sessions` to `scores` are as of
    `refreshed_at`: tokens of all sessions' active branches, what the next request of each would
    send of them, and how much the summaries of the last days know.
    """

    day = models.DateField(primary_key=True)
    succeeded = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    unfinished = models.PositiveIntegerField(default=0)
    tokens_saved = models.BigIntegerField(default=0)
    model_calls = models.PositiveIntegerField(default=0)
    cost = models.FloatField(default=0.0)
    ratios = models.JSONField(default=list)
    sessions = models.PositiveIntegerField(default=0)
    messages = models.PositiveBigIntegerField(default=0)
    tokens_stored = models.BigIntegerField(default=0)
    tokens_sent = models.BigIntegerField(default=0)
    # What statistics/scores.py has to say: scores by profile and model, and how many are low.
    scores = models.JSONField(default=dict, db_default={})
    refreshed_at = models.DateTimeField()

    class Meta:
        db_table = "compaction_daily_figures"
        verbose_name_plural = "daily figures"
        ordering = ["-day"]

    def __str__(self) -> str:
        return self.day.isoformat()


class SessionFigures(models.Model):
    """What one session adds to the totals of DailyFigures, and what it was worked out from.

    The second half of the columns says how the session stood then: where it stands otherwise now,
    the row is worked out anew (statistics/session_figures.py). It goes with its session.
    """

    session = models.OneToOneField(
        "chatapp.Session", on_delete=models.CASCADE, primary_key=True, related_name="figures"
    )
    messages = models.PositiveBigIntegerField(default=0)
    tokens_stored = models.BigIntegerField(default=0)
    tokens_sent = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField()
    request_tokens = models.BigIntegerField(default=0)
    token_total = models.BigIntegerField(default=0)
    cursor = models.BigIntegerField(default=0)
    covered_tokens = models.BigIntegerField(default=0)
    profile = models.CharField(max_length=60, blank=True, default="")

    class Meta:
        db_table = "compaction_session_figures"
        verbose_name_plural = "session figures"
        # Nobody sees or changes rows of it: they are worked out again at any time.
        default_permissions = ()

    def __str__(self) -> str:
        return f"Figures of session {short_id(self.session_id)}"


class LookMark(models.Model):
    """What a person said of one thing that needs a look, and whether it was alerted (attention/).

    `kind` is a kind of attention/kinds.py; the thing is a branch of a session, or a model by its
    alias. A thing is left out of the list while `hidden_until` lies ahead, and when `done_at` is
    not older than what happened last: when it happens again, it is back. The row of a kind without
    a thing is its floor: all that happened until `done_at` is done (attention/marks.py).
    """

    kind = models.CharField(max_length=40)
    branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    model = models.CharField(max_length=100, blank=True, default="")
    done_at = models.DateTimeField(null=True, blank=True)
    hidden_until = models.DateTimeField(null=True, blank=True)
    marked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    marked_at = models.DateTimeField(null=True, blank=True)
    alerted_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "look_marks"
        # Rows are made with the first mark; nothing else is done with them.
        default_permissions = ("change",)
        constraints = [
            # One mark a thing; also the index with which the list leaves out what is marked.
            models.UniqueConstraint(
                fields=["kind", "branch"],
                condition=models.Q(branch__isnull=False),
                name="look_mark_of_branch",
            ),
            models.UniqueConstraint(
                fields=["kind", "model"],
                condition=models.Q(branch__isnull=True),
                name="look_mark_of_model",
            ),
        ]
        indexes = [
            # What was set aside, newest first.
            models.Index(
                fields=["-marked_at", "-id"],
                condition=models.Q(marked_at__isnull=False),
                name="look_mark_newest",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.model or short_id(self.branch_id)}"

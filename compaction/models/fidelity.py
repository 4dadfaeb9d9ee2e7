"""What a summary keeps for later passes, where its lines come from, and how much it still knows."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import short_id
from compaction.engine.provenance import Origin


class SummaryUnits(models.Model):
    """The clauses that the next pass chooses from, so that nothing is summarised twice.

    `units` holds one list a clause (summaries/fidelity.py writes and reads them). A summary that
    was made before clauses were kept has no row. `named_weight` is what all that was named since
    the first message weighs.
    """

    summary = models.OneToOneField(
        "compaction.SessionSummary",
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="units",
    )
    units = models.JSONField(default=list)
    named_weight = models.FloatField(default=0.0)

    class Meta:
        db_table = "summary_units"
        verbose_name_plural = "summary units"

    def __str__(self) -> str:
        return f"Units of {short_id(self.summary_id)}"


class SummaryLine(models.Model):
    """One line of a summary and one piece of a message that it comes from.

    A line with three sources has three rows, one without any has a row without a message. `start`
    and `end` are offsets in the summary's text, the message's in its content; code points. Both of
    the message's are 0 where it is meant as a whole.
    """

    summary = models.ForeignKey(
        "compaction.SessionSummary",
        on_delete=models.CASCADE,
        related_name="lines",
        # lines_of_summary is the same, with a name.
        db_index=False,
    )
    number = models.PositiveIntegerField(help_text="The line's place in the summary, from 1.")
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    origin = models.CharField(
        max_length=7, choices=[(origin.value, origin.value.title()) for origin in Origin]
    )
    message = models.ForeignKey(
        "chatapp.Message",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="summary_lines",
        # line_of_message is the same without the empty ones.
        db_index=False,
    )
    message_start = models.PositiveIntegerField(default=0)
    message_end = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "summary_lines"
        indexes = [
            # GET summaries/{id}/lines/ and the summary's page. Some hundred rows are quickly put in
            # order; with the number in it no two entries would be alike, and each takes its room.
            models.Index(fields=["summary"], name="lines_of_summary"),
            # GET messages/{id}/fate/, the message's page, and the deletion of messages.
            models.Index(
                fields=["message"],
                condition=models.Q(message__isnull=False),
                name="line_of_message",
            ),
        ]

    def __str__(self) -> str:
        return f"Line {self.number} of {short_id(self.summary_id)}"


class SummaryQuality(models.Model):
    """How much one summary still knows of what it covers, measured without a model.

    `score` (0 to 100) and what it is made of come from engine/fidelity/measure.py, whose version
    stands beside them; `figures` holds all that has no column. `hindsight` is the share of the old
    facts named in later turns that this summary knew; it is empty while no such fact was named, and
    `hindsight_at` says when the turns were read. `verdict` is a person's.
    """

    class Verdict(models.TextChoices):
        """What a person thinks of the summary; empty: nobody has said."""

        GOOD = "good", "Good"
        BAD = "bad", "Bad"

    summary = models.OneToOneField(
        "compaction.SessionSummary",
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="quality",
    )
    version = models.PositiveSmallIntegerField()
    score = models.FloatField()
    yardstick = models.FloatField(
        default=0.0, help_text="The score of an extractive text of equal size; 0: unknown."
    )
    cumulative = models.FloatField(
        null=True,
        blank=True,
        help_text="Share known of all that was named since the first message.",
    )
    unsupported_count = models.PositiveIntegerField(default=0)
    rejected = models.PositiveSmallIntegerField(
        default=0, help_text="How often a text was refused before this one was taken."
    )
    hindsight = models.FloatField(null=True, blank=True)
    hindsight_facts = models.PositiveIntegerField(default=0)
    hindsight_at = models.DateTimeField(null=True, blank=True, editable=False)
    verdict = models.CharField(max_length=4, choices=Verdict.choices, blank=True)
    verdict_note = models.TextField(blank=True)
    verdict_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    verdict_at = models.DateTimeField(null=True, blank=True)
    figures = models.JSONField(default=dict, blank=True)
    lost = models.JSONField(default=list, blank=True)
    facts = models.JSONField(default=list, blank=True)
    ignored = models.JSONField(
        default=list, blank=True, help_text="Keys of lost facts that do not matter."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "summary_qualities"
        verbose_name_plural = "summary qualities"
        indexes = [
            # /metrics counts the scores, the list of low ones finds its own.
            models.Index(fields=["score"], name="quality_score"),
            # What needs a look: the newest that nobody has judged.
            models.Index(
                fields=["-created_at", "score"], condition=models.Q(verdict=""), name="quality_new"
            ),
        ]

    def __str__(self) -> str:
        return f"Quality of {short_id(self.summary_id)} ({self.score:.0f})"

"""Filters of runs and summaries: columns with few values, and ranges of the ratio's index."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from compaction.models import CompactionRun, SessionSummary
from compaction.statistics.ratios import RATIO_BINS, bin_q
from compaction.vocabulary import INTERRUPTED, REASONS, SUMMARY_STATUSES

# Groups of states, as the front page counts them.
FAILURES = "failures"
UNFINISHED = "unfinished"
# Queued runs that wait for something else than a worker.
WAITING = "waiting"
BACKING_OFF = "backing-off"
COMPACTING = "compacting"
UNFINISHED_STATUSES = (CompactionRun.Status.QUEUED, CompactionRun.Status.RUNNING)


def bin_value(index: int) -> str:
    """Return what the address says for one step of the distribution: 15-20, in per cent."""
    width = 100 // RATIO_BINS
    upper = str((index + 1) * width) if index < RATIO_BINS - 1 else ""
    return f"{index * width}-{upper}"


def bin_words(index: int) -> str:
    """Return one step of the distribution in words."""
    lower, upper = bin_value(index).split("-")
    return f"{lower} % to {upper} %" if upper else f"{lower} % and more"


class Trigger(admin.SimpleListFilter):
    """Who or what started it (document 002's trigger); summaries keep the word without choices."""

    title = "started by"
    parameter_name = "trigger"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the four triggers."""
        return CompactionRun.Trigger.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one trigger's rows."""
        return queryset.filter(trigger=self.value()) if self.value() else queryset


class Reason(admin.SimpleListFilter):
    """The exact rule; rules are known, so the table is not read for them."""

    title = "reason"
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the rules."""
        return list(REASONS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one rule's rows."""
        return queryset.filter(reason=self.value()) if self.value() else queryset


class RunStatus(admin.SimpleListFilter):
    """The life of a run, with Interrupted told apart from Failed; groups are those of figures."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the states."""
        return [
            *CompactionRun.Status.choices,
            (INTERRUPTED, "Interrupted"),
            (FAILURES, "Failed or interrupted"),
            (UNFINISHED, "Queued or running"),
            (WAITING, "Queued, and waits for a time"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one state's rows."""
        failed = CompactionRun.Status.FAILED
        if self.value() == FAILURES:
            return queryset.filter(status=failed)
        if self.value() == UNFINISHED:
            return queryset.filter(status__in=UNFINISHED_STATUSES)
        if self.value() == WAITING:
            queued = CompactionRun.Status.QUEUED
            return queryset.filter(status=queued, waits_until__gt=timezone.now())
        if self.value() == INTERRUPTED:
            return queryset.filter(status=failed, error_code=INTERRUPTED)
        if self.value() == failed:
            return queryset.filter(status=failed).exclude(error_code=INTERRUPTED)
        return queryset.filter(status=self.value()) if self.value() else queryset


class SummaryStatus(admin.SimpleListFilter):
    """Whether a summary counts, in the words of its badge."""

    title = "status"
    parameter_name = "status__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the four states."""
        choices = SessionSummary.Status.choices
        return [(value, SUMMARY_STATUSES.get(value, words)) for value, words in choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one state's rows."""
        return queryset.filter(status=self.value()) if self.value() else queryset


class Activity(admin.SimpleListFilter):
    """What a branch is doing now: a worker holds it, or automatic runs wait after failures."""

    title = "activity"
    parameter_name = "activity"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return what a branch may be doing."""
        return [(COMPACTING, "Compacting"), (BACKING_OFF, "Backs off")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the branches that do it."""
        now = timezone.now()
        if self.value() == COMPACTING:
            return queryset.filter(lease_owner__isnull=False, lease_expires_at__gt=now)
        if self.value() == BACKING_OFF:
            return queryset.filter(backoff_until__gt=now)
        return queryset


class Ratio(admin.SimpleListFilter):
    """The summary's size as a part of its input, in ranges of the index `summary_ratio`.

    A step of the distribution on the front page is shown only while it is in force.
    """

    title = "compression ratio"
    parameter_name = "ratio"
    bins = {bin_value(index): index for index in range(RATIO_BINS)}
    ranges = {"10": (0.0, 0.1), "25": (0.1, 0.25), "50": (0.25, 0.5), "more": (0.5, None)}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the ranges."""
        wanted = request.GET.get(self.parameter_name, "")
        return [
            ("10", "Below 10 %"),
            ("25", "10 % to 25 %"),
            ("50", "25 % to 50 %"),
            ("more", "50 % and more"),
            *([(wanted, bin_words(self.bins[wanted]))] if wanted in self.bins else []),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep one range's rows: from its lower end up to, not including, its upper."""
        if self.value() in self.bins:
            return queryset.filter(bin_q(self.bins[str(self.value())]))
        if self.value() not in self.ranges:
            return queryset
        low, high = self.ranges[str(self.value())]
        kept = queryset.filter(compression_ratio__gte=low)
        return kept if high is None else kept.filter(compression_ratio__lt=high)

"""What operators read instead of codes: reasons, triggers, states, ratios."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format, localize
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin import cells
from compaction.models import CompactionRun, CompactionStep, SessionSummary

SINCE_SUMMARY = "since the last summary"
REASONS = {
    "message_limit": "Message limit reached",
    "token_limit": "Token limit reached",
    "window": "Window nearly full",
    "ahead": "Ahead of need",
    "message_window": "Window of messages full",
    "maximum_age": "Messages waited long enough",
    "hard_limit": "Hard limit reached",
    "overflow_retry": "Request was too large",
    "overflow_again": "Request was still too large",
    "precheck": "Request would have been too large",
    "manual": "By hand",
    "resummarize": "Re-summarised",
    "archive": "Stored unsummarised",
}
RULES = {
    "message_limit": f"Messages {SINCE_SUMMARY}",
    "token_limit": f"Tokens {SINCE_SUMMARY}",
    "window": "Tokens of the next request",
    "ahead": "Tokens of the next request, to summarise ahead",
    "message_window": "Messages beyond the tail",
    "hard_limit": "Messages beyond the tail, at the latest",
    "maximum_age": "Maximum age of a message beyond the tail",
}
OUTCOMES = {
    "ok": "ok",
    "overflow": "too large",
    "truncated": "cut off",
    "error": "error",
    "forced": "shortened",
}
OUTCOME_MEANINGS = {
    "ok": "the answer counts",
    "overflow": "refused as larger than the window; its input is halved",
    "truncated": "the answer filled its room; counts as too large",
    "error": "no usable answer",
    "forced": "made here without a model call, with parts left out",
}
# The rungs of a ladder: what was tried.
MOVES = {
    "compact": "Compaction",
    "truncate": "Tool results cut",
    "halve": "Fewer messages sent",
    "give_up": "Gave up",
}
MOVE_MEANINGS = {
    "compact": "What was said so far is sent as a summary; nothing stored is lost.",
    "truncate": "The conversation goes on in a new branch with shortened tool results; the old "
    "branch is stored as it was.",
    "halve": "Only the newest messages were sent, in this turn alone; nothing stored changed.",
    "give_up": "Nothing was left to try: the user was told what to do.",
}
RUNG_OUTCOMES = {"smaller": "smaller", "no_help": "no help", "failed": "failed"}
INTERRUPTED = "interrupted"
# The kind of a step that joins two texts.
MERGE = "merge"
# What is shorter than this is told in milliseconds.
SHORT_SECONDS = 0.1
SMALLEST_MONEY = 0.0001
SUMMARY_STATUSES = {SessionSummary.Status.DRAFT.value: "Draft: not sent yet"}
ARCHIVE_BADGE = cells.badge("Archive", "busy")
_TONES = {
    "queued": "busy",
    "running": "busy",
    "succeeded": "good",
    "failed": "bad",
    "active": "good",
}


def reason_words(reason: str) -> str:
    """Return a trigger rule in words; a rule of a plug-in keeps its name."""
    return REASONS.get(reason, reason)


def rule_words(reason: str, *, has_summary: bool) -> str:
    """Return what a trigger rule measures; before the first summary, everything so far."""
    words = RULES.get(reason, reason_words(reason))
    return words if has_summary else words.replace(SINCE_SUMMARY, "so far")


def truncated_words(truncated: bool) -> SafeString | str:
    """Return whether text had to be left out; a stock icon would show the good case in red."""
    return cells.badge("Truncated", "bad") if truncated else "no"


def trigger_words(trigger: str) -> str:
    """Return who or what started a run: document 002's trigger in words."""
    return str(dict(CompactionRun.Trigger.choices).get(trigger, trigger))


def why(run: CompactionRun) -> str:
    """Return a run's rule, and what started it where that says more, as a sentence."""
    reason, trigger = reason_words(run.reason), trigger_words(run.trigger)
    return f"{reason}." if reason == trigger else f"{reason} ({trigger.lower()})."


def run_status(run: CompactionRun) -> SafeString:
    """Return how a run stands, as a badge; one that waits says until when."""
    if waits(run):
        until = clock(run.waits_until)
        return format_html("{} until {}", cells.badge("Waiting", "busy"), until)
    return cells.badge(status_words(run), status_tone(run))


def status_words(run: CompactionRun) -> str:
    """Return how a run stands; a failed one whose worker stopped reads Interrupted."""
    if waits(run):
        return f"Waiting until {clock(run.waits_until)}"
    interrupted = run.status == CompactionRun.Status.FAILED and run.error_code == INTERRUPTED
    return "Interrupted" if interrupted else str(run.get_status_display())


def status_tone(run: CompactionRun) -> str:
    """Return the tone of a run's badge."""
    return _TONES.get(run.status, "")


def waits(run: CompactionRun) -> bool:
    """Whether a queued run waits for something else than a worker, and until when is known."""
    return (
        run.status == CompactionRun.Status.QUEUED
        and run.waits_until is not None
        and run.waits_until > timezone.now()
    )


def summary_status(summary: SessionSummary) -> SafeString:
    """Return whether a summary counts, and whether it is an archive."""
    badge = cells.badge(summary_words(summary), _TONES.get(summary.status, ""))
    return format_html("{} {}", badge, ARCHIVE_BADGE) if summary.archived else badge


def summary_words(summary: SessionSummary) -> str:
    """Return whether a summary counts, in words."""
    return SUMMARY_STATUSES.get(summary.status, str(summary.get_status_display()))


def when(moment: Any) -> str:
    """Return a time as the lists show it."""
    return str(localize(timezone.localtime(moment))) if moment else "—"


def clock(moment: datetime | None) -> str:
    """Return a time, short: 14:05, or 28 Nov, 14:05 on another day."""
    if moment is None:
        return "—"
    local = timezone.localtime(moment)
    is_today = local.date() == timezone.localdate()
    return date_format(local, "H:i" if is_today else "j M, H:i")


def span_words(span: timedelta) -> str:
    """Return a span of time, short: 45 s, 12 min, 3 h 5 min, 2 days."""
    seconds = int(span.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def before_after(before: int | None, after: int | None) -> str:
    """Return the next request's tokens before and after."""
    if before is None or after is None:
        return "—"
    return f"{before:,} → {after:,}"


def percent(ratio: float | None) -> str:
    """Return the summary's size as a part of its input."""
    return "—" if ratio is None else f"{100 * ratio:.1f} %"


def seconds(run: CompactionRun) -> str:
    """Return how long a finished run took."""
    if run.started_at is None or run.finished_at is None:
        return "—"
    return duration((run.finished_at - run.started_at).total_seconds())


def step_seconds(step: CompactionStep) -> str:
    """Return how long a step took."""
    return duration(step.duration_ms / 1000)


def duration(span: float) -> str:
    """Return a span of seconds: 2.4 s, or 45 ms where that would read 0.0 s."""
    if span >= SHORT_SECONDS:
        return f"{span:,.1f} s"
    return f"{1000 * span:.0f} ms" if span >= 0.0005 else "< 1 ms"


def money(cost: float) -> str:
    """Return what something cost, in the currency of the prices; a dash where nothing is known."""
    if not cost:
        return "—"
    return f"{cost:,.4f}" if cost >= SMALLEST_MONEY else f"< {SMALLEST_MONEY}"


def is_forced(step: CompactionStep) -> bool:
    """Whether the text was shortened here, without a call: a model's cut-off answer has an error.

    A list reads only the error's beginning.
    """
    if step.outcome != CompactionStep.Outcome.TRUNCATED:
        return False
    begin = getattr(step, "error_begin", None)
    return not (step.error if begin is None else begin)


def outcome_kind(step: CompactionStep) -> str:
    """Return a key of OUTCOMES: how a step ended, a text shortened without one told apart."""
    if is_forced(step):
        return "forced"
    return step.outcome if step.outcome in OUTCOMES else "error"

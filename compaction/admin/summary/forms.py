"""The forms of a summary's page: make it again with instructions, take it back with the newer."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.page_forms import PageForm, RefusedError
from compaction.admin.acting import REFUSALS, may_run, queued
from compaction.errors import CompactionError
from compaction.models import CompactionProfile, SessionSummary
from compaction.runs.resummarize import resummarize
from compaction.summaries.restore import Restored, restore_summary

Status = SessionSummary.Status
INSTRUCTIONS_CHARS = 4000


class InstructedForm(forms.Form):
    """What a run should pay attention to."""

    instructions = forms.CharField(
        required=False,
        max_length=INSTRUCTIONS_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What to pay attention to, in your words; may stay empty.",
    )


class ResummariseForm(InstructedForm):
    """What the new version should pay attention to, and which profile makes it."""

    profile = forms.ModelChoiceField(
        queryset=CompactionProfile.objects.none(),
        required=False,
        empty_label="The profile of the branch",
        help_text="Which parameters and which summarising model make it.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen: Any = self.fields["profile"]
        chosen.queryset = CompactionProfile.objects.filter(is_current=True).order_by("name")


class RestoreForm(forms.Form):
    """Whether newer summaries, which were built on this one, are taken back too."""

    cascade = forms.BooleanField(
        required=False,
        label="Take back all newer summaries that were built on it, too",
        help_text="Without this, a summary that others were built on stays as it is.",
    )


def refuse_draft(summary: SessionSummary) -> None:
    """Raise CompactionError for a draft: it covers nothing that could be sent again."""
    if summary.status == Status.DRAFT:
        raise CompactionError(
            "It is a draft and not sent yet: its messages are sent verbatim, so there is nothing "
            "to take back or to make again. When a rule asks for it, it counts; then it can be."
        )


def may_restore(request: HttpRequest) -> bool:
    """Whether the operator may take summaries back: permission `change session summary`."""
    user: Any = request.user
    return bool(user.has_perm("compaction.change_sessionsummary"))


def taken_back(restored: Restored) -> SafeString:
    """Return the sentence for summaries that no longer count."""
    first = restored.summaries[0]
    more = len(restored.summaries) - 1
    others = f" and {more} newer {'summary' if more == 1 else 'summaries'}" if more else ""
    count = sum(summary.message_count for summary in restored.summaries)
    return format_html(
        "{}{} no longer cover{} {} {} messages: they are sent verbatim again.",
        cells.row_link(first),
        others,
        "" if more else "s",
        "their" if more else "its",
        formatting.number(count),
    )


def _make_resummarise(
    request: HttpRequest, summary: SessionSummary, data: Any
) -> forms.Form | None:
    return ResummariseForm(data) if summary.status == Status.ACTIVE else None


def _resummarise(
    request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]
) -> SafeString:
    try:
        run = resummarize(
            summary,
            profile=asked["profile"],
            instructions=asked["instructions"],
            background=True,
            requested_by=request.user,
        )
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    return queued(run, summary)


def _make_restore(request: HttpRequest, summary: SessionSummary, data: Any) -> forms.Form | None:
    return RestoreForm(data) if summary.status == Status.ACTIVE else None


def _restore(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> SafeString:
    try:
        return taken_back(restore_summary(summary, cascade=asked["cascade"]))
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal


RESUMMARISE = PageForm(
    label="Re-summarise",
    make=_make_resummarise,
    do=_resummarise,
    may=may_run,
    help="A worker makes a new version from the same messages; this one then no longer counts.",
)
RESTORE = PageForm(
    label="Restore the messages",
    make=_make_restore,
    do=_restore,
    may=may_restore,
    help="The summary stays stored but is sent no more: its messages are sent verbatim again.",
)

"""What stands above everything else on the page of a fallback digest or of a draft."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from compaction.models import SessionSummary

Status = SessionSummary.Status
_ARCHIVE = (
    "An archive: no summariser could write a summary, so the messages themselves stand here, "
    "shortened and unsummarised. All of them are stored. It is sent beside the newest summary "
    "until another one takes it in."
)
_DRAFT = (
    "A draft: made ahead of need and not sent yet. It covers nothing: its messages are sent "
    "verbatim. When a rule asks for it, it counts at once, without a model call; if other messages "
    "were summarised meanwhile, it is put aside. Until then it can be neither made again nor taken "
    "back."
)


def notices_on(summary: SessionSummary, *, may_redo: bool) -> list[SafeString | str]:
    """Return the sentences; with a way to the form where the fallback digest may be made again."""
    found: list[SafeString | str] = []
    if summary.is_digest:
        found.append(_of_archive(summary, may_redo=may_redo))
    if summary.status == Status.DRAFT:
        found.append(_DRAFT)
    return found


def _of_archive(summary: SessionSummary, *, may_redo: bool) -> SafeString | str:
    if summary.status != Status.ACTIVE:
        return _ARCHIVE
    if not may_redo:
        return f"{_ARCHIVE} Who may start runs can have it summarised again."
    return format_html(
        '{} When the summariser answers again, <a href="#form-resummarise">re-summarise it</a>: '
        "a summary of the same messages then takes its place.",
        _ARCHIVE,
    )

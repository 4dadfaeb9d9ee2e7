"""The forms of a summary's versions: activate one, and write a text of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.permissions import may_see_texts
from chatapp.formatting import when
from compaction.admin.actions import REFUSALS
from compaction.admin.forms import INSTRUCTIONS_CHARS
from compaction.admin.restoring import may_restore
from compaction.admin.summary_panels import person_of
from compaction.models import SessionSummary
from compaction.runs.measuring import edit_and_measure
from compaction.summaries.activating import Activated, Newer, activate_version
from compaction.summaries.editing import Edited

Status, Kind = SessionSummary.Status, SessionSummary.Kind
NOT_COUNTING = (Status.SUPERSEDED, Status.RESTORED)
# Named in a form of the comparison, so that it leads back there.
COMPARED = "compare"
SENT = "The next request holds its text."
NOT_SENT = (
    "The next request does not hold its text: newer summaries alone are sent, or the conversation "
    "goes on in another branch."
)


class ActivateForm(forms.Form):
    """What becomes of newer summaries that took in the version which is replaced."""

    newer = forms.ChoiceField(
        required=False,
        choices=[
            (Newer.ASK.value, "Tell me which, and change nothing"),
            (Newer.RESTORE.value, "Take them back: their messages are sent verbatim again"),
            (Newer.KEEP.value, "Leave them: they go on saying what the other version said"),
        ],
        label="Newer summaries that took in another version",
    )


class EditForm(forms.Form):
    """A text of one's own, and what runs are told that go on with it."""

    text = forms.CharField(
        strip=False,
        widget=forms.Textarea(attrs={"rows": 16}),
        help_text="At most twice the tokens that the summary was asked for.",
    )
    instructions = forms.CharField(
        required=False,
        max_length=INSTRUCTIONS_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What automatic runs that continue it, and re-summaries, pay attention to.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownActivation:
    """A form of the comparison that activates one of the two versions, as it is drawn."""

    form: ActivateForm
    url: str
    compared_with: UUID


def activation_beside(
    request: HttpRequest, summary: SessionSummary, other: SessionSummary
) -> ShownActivation | None:
    """Return the form below one of two versions; None where it cannot count, or may not."""
    if not may_restore(request) or not can_count(summary):
        return None
    return ShownActivation(
        form=ActivateForm(auto_id=f"activate-{formatting.short_id(summary.pk)}-%s"),
        url=reverse("admin:compaction_sessionsummary_do", args=[summary.pk, "activate"]),
        compared_with=other.pk,
    )


def can_count(summary: SessionSummary) -> bool:
    """Whether a summary is a version that might count again; the service says whether it can."""
    return summary.status in NOT_COUNTING and summary.kind == Kind.COMPACTION


def may_edit(request: HttpRequest) -> bool:
    """Whether the operator may write texts: `change session summary` and `view message`."""
    return may_restore(request) and may_see_texts(request)


def _make_activate(request: HttpRequest, summary: SessionSummary, data: Any) -> forms.Form | None:
    return ActivateForm(data, auto_id="activate_%s") if can_count(summary) else None


def _activate(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> SafeString:
    try:
        newer = Newer(asked["newer"])
        return activated(activate_version(summary, newer=newer, by=request.user))
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal


def activated(done: Activated) -> SafeString:
    """Return the sentences for a version that counts again."""
    first = html.row_link(done.summary)
    place: SafeString | str = ""
    if done.replaced is not None:
        place = format_html(" in the place of {}", html.row_link(done.replaced))
    restored = f" {formatting.plural(len(done.restored), 'newer one')} taken back: the messages "
    kept = f" {formatting.plural(len(done.kept), 'newer one')} left as before."
    return format_html(
        "{} counts again{}; nothing was deleted.{}{} {}{}",
        first,
        place,
        f"{restored}are sent verbatim again." if done.restored else "",
        kept if done.kept else "",
        SENT if done.is_sent else NOT_SENT,
        f" What is sent verbatim again is held {done.hold}." if done.hold else "",
    )


def _make_edit(request: HttpRequest, summary: SessionSummary, data: Any) -> forms.Form | None:
    if summary.status != Status.ACTIVE or summary.kind != Kind.COMPACTION:
        return None
    shown = {"text": summary.summary_text, "instructions": summary.instructions}
    return EditForm(data, initial=shown, auto_id="edit_%s")


def _edit(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> SafeString:
    try:
        return edited(edit_and_measure(summary, author=request.user, **asked))
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal


def edited(done: Edited) -> SafeString:
    """Return the sentences for a text that a person wrote."""
    return format_html(
        "{} holds your text and counts from now on; this version stays stored.{}",
        html.row_link(done.summary),
        "".join(f" {note}" for note in done.notes),
    )


def notice_of_person(summary: SessionSummary) -> str:
    """Return what it means that a person wrote the text."""
    return (
        f"Written by {person_of(summary)} ({when(summary.created_at)}). Automatic runs continue "
        "it as the previous summary; no program replaces it unless somebody asks for that."
    )


ACTIVATE = PageForm(
    label="Activate this version",
    make=_make_activate,
    do=_activate,
    may=may_restore,
    help="It counts again, and the version that counts now does not: the next request is what it "
    "was while this one counted.",
)
EDIT = PageForm(
    label="Edit the text",
    make=_make_edit,
    do=_edit,
    may=may_edit,
    help="Your text is a new version with your name; this one stays stored and can be activated "
    "again.",
)

"""The forms of a branch: switch to it, with or without a summary of what is left, and name it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import transcript
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.permissions import holds, may_run, may_see_texts, nameless_link
from chatapp.context.backend import context_backend
from chatapp.models import MAX_LABEL_CHARS, Branch, Session
from chatapp.transcript.writing import TranscriptError

INSTRUCTIONS_CHARS = 4_000


class SwitchForm(forms.Form):
    """How to switch; what a summary takes is asked where one can be made by this operator."""

    summarize = forms.BooleanField(
        required=False,
        label="Summarise the branch that is left",
        help_text="A model writes down what happened there; a note of it opens what follows here.",
    )
    instructions = forms.CharField(
        required=False,
        max_length=INSTRUCTIONS_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What the summary should pay attention to; may stay empty.",
    )
    replace_instructions = forms.BooleanField(
        required=False, label="Use these instructions instead of the usual ones"
    )
    label = forms.CharField(
        required=False,
        max_length=MAX_LABEL_CHARS,
        help_text="A name for this branch; empty: it keeps the one it has.",
    )

    def __init__(self, *args: Any, can_summarise: bool, can_name: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not can_summarise:
            for name in ("summarize", "instructions", "replace_instructions"):
                del self.fields[name]
        if not can_name:
            del self.fields["label"]

    def clean(self) -> dict[str, Any]:
        """Refuse instructions that nobody would read."""
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("instructions") and not cleaned.get("summarize"):
            self.add_error("summarize", "Instructions are for the summary: tick this, too.")
        if cleaned.get("replace_instructions") and not cleaned.get("instructions"):
            self.add_error("instructions", "Say what is to stand in the place of the usual ones.")
        return cleaned


class LabelForm(forms.Form):
    """What a branch is called; empty for nothing."""

    label = forms.CharField(
        required=False, max_length=MAX_LABEL_CHARS, help_text="Empty takes the name away."
    )


def may_switch(request: HttpRequest) -> bool:
    """Whether the operator may change which branch goes on: permission `change session`."""
    return holds(request, "chatapp.change_session")


def may_name(request: HttpRequest) -> bool:
    """Whether the operator may name branches: `change branch`, and seeing texts, as names are."""
    return holds(request, "chatapp.change_branch") and may_see_texts(request)


def _make_switch(request: HttpRequest, branch: Branch, data: Any) -> forms.Form | None:
    if branch.session.active_branch_id == branch.pk:
        return None
    return SwitchForm(
        data,
        auto_id="switch_%s",
        can_summarise=may_run(request) and context_backend.offers_branch_summary(branch.session),
        can_name=may_name(request),
    )


def _switch(request: HttpRequest, branch: Branch, asked: dict[str, Any]) -> SafeString | str:
    label = asked.get("label") or None
    wishes = {
        "summarize": asked.get("summarize", False),
        "instructions": asked.get("instructions", ""),
        "replace_instructions": asked.get("replace_instructions", False),
        "label": label,
        "wait": False,
        "requested_by": request.user,
    }
    try:
        transcript.switch(branch.session, branch, wishes)
    except TranscriptError as refusal:
        raise RefusedError(str(refusal)) from refusal
    is_there = Session.objects.filter(pk=branch.session_id, active_branch=branch).exists()
    if not is_there:
        return format_html(
            "A worker summarises the branch that is left; then the session goes on with {}. If "
            "that fails, it stays where it is, and the run says why.",
            nameless_link(branch),
        )
    return format_html("The session goes on with {}.", nameless_link(branch))


def _make_label(request: HttpRequest, branch: Branch, data: Any) -> forms.Form | None:
    return LabelForm(data, initial={"label": branch.label}, auto_id="label_%s")


def _label(request: HttpRequest, branch: Branch, asked: dict[str, Any]) -> SafeString | str:
    transcript.set_label(branch, asked["label"])
    if not asked["label"]:
        return format_html("{} has no name any more.", nameless_link(branch))
    return format_html("{} has a new name.", nameless_link(branch))


BRANCH_FORMS = {
    "switch": PageForm(
        label="Switch to this branch",
        make=_make_switch,
        do=_switch,
        may=may_switch,
        help="The next turn of the session goes on here. Nothing is lost on the branch that is "
        "left.",
    ),
    "label": PageForm(
        label="Name this branch",
        make=_make_label,
        do=_label,
        may=may_name,
        help="For people; models never see it.",
    ),
}

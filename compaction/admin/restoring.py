"""What operators are told before a restore, what they may add to it, and what follows it.

That is the hold, which they lift here, and the instructions that the next summary gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.permissions import holds, may_see_texts
from chatapp.models import Branch, Session
from compaction.admin.actions import REFUSALS, queued
from compaction.admin.branch_view import view_for
from compaction.branches.snapshot import snapshot_of
from compaction.engine.policy.reasons import Reason
from compaction.models import CompactionRun, SessionSummary
from compaction.runs.holding import RestorePreview, lift_hold, preview_restore
from compaction.runs.lifecycle import RunRequest, request_run
from compaction.summaries.instructions import MOST_INSTRUCTION_CHARS, change_instructions

Status = SessionSummary.Status
LIFT = "Lift the hold"


class AgainForm(forms.Form):
    """What may follow a restore at once: the messages compacted again, as a person says."""

    compact_again = forms.BooleanField(
        required=False,
        label="Compact again from here, with instructions",
        help_text="A worker summarises the restored messages again; then nothing holds them.",
    )
    instructions = forms.CharField(
        required=False,
        max_length=MOST_INSTRUCTION_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What the new summary should pay attention to; may stay empty.",
    )

    def __init__(self, *args: Any, may_compact: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not may_compact:
            for name in ("compact_again", "instructions"):
                del self.fields[name]

    def clean(self) -> dict[str, Any]:
        """Refuse instructions that nobody would read."""
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("instructions") and not cleaned.get("compact_again"):
            self.add_error("compact_again", "Instructions are for a compaction: tick this, too.")
        return cleaned


def may_restore(request: HttpRequest) -> bool:
    """Whether the operator may take summaries back: permission `change session summary`."""
    return holds(request, "compaction.change_sessionsummary")


def words_before(
    request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]
) -> list[SafeString | str]:
    """Return what restoring a summary would do, for the page that asks whether to."""
    preview = preview_restore(summary, cascade=asked.get("cascade", False), by=request.user)
    first = _what_is_restored(preview)
    if asked.get("compact_again"):
        return [first, "They are compacted again by a worker, with the instructions below."]
    return [first, preview.sentence, _hold_words(preview)]


def _what_is_restored(preview: RestorePreview) -> str:
    count = len(preview.summaries)
    summaries = "1 summary" if count == 1 else f"{count:,} summaries"
    messages = formatting.plural(preview.messages, "message")
    return f"{summaries} would count no more: {messages} would be sent verbatim again."


def _hold_words(preview: RestorePreview) -> str:
    if not preview.hold:
        return "The profile holds nothing (restore_hold): its rules may compact them again."
    if preview.next_turn.compacts is None:
        return f"They would be held {preview.hold}: no rule compacts them."
    if preview.next_turn.waits_for_refusal:
        return (
            f"They would be held {preview.hold}: no rule compacts them. A refusal by the model's "
            "server would break the hold, for what does not fit cannot be sent."
        )
    return (
        f"They would be held {preview.hold}, but what does not fit cannot be sent: the window "
        "would break the hold. Compact again from here with instructions, or give the session a "
        "model with a larger window first."
    )


def words_for_many(
    request: HttpRequest, summaries: Iterable[SessionSummary]
) -> list[SafeString | str]:
    """Return what restoring some summaries in their order would do, for each session.

    Told in its place is why not, where one would be refused.
    """
    previews: dict[UUID, RestorePreview] = {}
    refused: list[SafeString | str] = []
    for summary in summaries:
        known = previews.get(summary.session_id)
        before = known.summaries if known is not None else ()
        try:
            found = preview_restore(summary, by=request.user, before=before)
        except REFUSALS as refusal:
            refused.append(f"Summary {formatting.short_id(summary.pk)}: {refusal}")
        else:
            previews[summary.session_id] = found
    return [*map(_words_of, previews.values()), *refused]


def _words_of(preview: RestorePreview) -> str:
    names = ", ".join(formatting.short_id(row.pk) for row in preview.summaries)
    kind = "Summary" if len(preview.summaries) == 1 else "Summaries"
    said = (_what_is_restored(preview), preview.sentence, _hold_words(preview))
    return f"{kind} {names}: {' '.join(said)}"


def compacted_again(
    request: HttpRequest, session: Session, branch: Branch, instructions: str
) -> SafeString:
    """Queue a run by hand over what was restored, and say so; raises one of actions.REFUSALS."""
    snapshot = snapshot_of(session, branch)
    run = request_run(
        RunRequest(
            session=session,
            branch=snapshot.branch,
            trigger=CompactionRun.Trigger.MANUAL,
            reason=Reason.MANUAL,
            profile=snapshot.profile_row,
            background=True,
            instructions=instructions,
            requested_by=request.user,
        )
    )
    return queued(run)


def after_restore(
    request: HttpRequest, summary: SessionSummary, asked: dict[str, Any], told: SafeString
) -> SafeString:
    """Do what was asked for besides, and return all that was done as sentences."""
    if not asked.get("compact_again"):
        return told
    run = compacted_again(request, summary.session, summary.branch, asked["instructions"])
    return format_html("{} {}", told, run)


# --- the hold -------------------------------------------------------------------------------------


def _make_lift(request: HttpRequest, session: Session, data: Any) -> forms.Form | None:
    if session.active_branch_id is None:
        return None
    try:
        held = view_for(request, session).snapshot.state.is_held
    except REFUSALS:
        return None
    return forms.Form(data) if held else None


def _lift(request: HttpRequest, session: Session, asked: dict[str, Any]) -> str:
    try:
        lifted = lift_hold(session, by=request.user)
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    if not lifted:
        return "Nothing was held any more."
    return "The hold is lifted: the profile's rules count again."


HOLD_FORMS = {
    "lift": PageForm(
        label=LIFT,
        make=_make_lift,
        do=_lift,
        may=may_restore,
        help="The profile's rules count again for what was restored: what is due by then is "
        "compacted in the background, with the instructions that its summary had.",
    ),
}


# --- the instructions that are carried on ---------------------------------------------------------


class InstructionsForm(forms.Form):
    """What the next summary of the same messages is told."""

    instructions = forms.CharField(
        required=False,
        max_length=MOST_INSTRUCTION_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Empty takes them away.",
    )


def may_instruct(request: HttpRequest) -> bool:
    """Whether the operator may change instructions: as for restoring, and seeing texts."""
    return may_restore(request) and may_see_texts(request)


def _make_instructions(
    request: HttpRequest, summary: SessionSummary, data: Any
) -> forms.Form | None:
    if summary.kind == SessionSummary.Kind.BRANCH:
        return None
    if summary.status in (Status.SUPERSEDED, Status.DRAFT):
        return None
    shown = {"instructions": summary.instructions}
    return InstructionsForm(data, initial=shown, auto_id="instructions_%s")


def _change_instructions(
    request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]
) -> str:
    try:
        change_instructions(summary, asked["instructions"], by=request.user)
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    return "The next summary of these messages gets the instructions as they are now."


CHANGE_INSTRUCTIONS = PageForm(
    label="Change the instructions",
    make=_make_instructions,
    do=_change_instructions,
    may=may_instruct,
    help="This text stays as it is. When its messages are summarised again by a rule, or the next "
    "summary takes it in, the instructions are carried on.",
)

"""The forms of sessions and summaries: compact, make again, take back, change the profile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_forms import PageForm, RefusedError
from chatapp.admin.toolkit.permissions import holds, may_run, may_see_texts
from chatapp.models import Session
from compaction.admin.actions import REFUSALS, queued
from compaction.admin.branch_view import newest_summaries_of, view_for
from compaction.admin.restoring import (
    HOLD_FORMS,
    AgainForm,
    after_restore,
    may_restore,
    words_before,
)
from compaction.branches.holds import until_words
from compaction.branches.snapshot import snapshot_of
from compaction.engine.parameters import Profile
from compaction.engine.policy.reasons import Reason
from compaction.errors import CompactionError
from compaction.models import CompactionProfile, CompactionRun, SessionSummary
from compaction.profiles import current_names, find_profile
from compaction.runs.lifecycle import RunRequest, request_run
from compaction.runs.resummarize import resummarize
from compaction.runs.scheduling import assign_profile
from compaction.summaries.restore import Restored, restore_summary

Status = SessionSummary.Status
INSTRUCTIONS_CHARS = 4000
_KEEP = Profile.__dataclass_fields__["keep_last_n"].metadata
Do = Callable[[HttpRequest, Any, dict[str, Any]], SafeString | str]


class InstructedForm(forms.Form):
    """What a run should pay attention to."""

    instructions = forms.CharField(
        required=False,
        max_length=INSTRUCTIONS_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What to pay attention to, in your words; may stay empty.",
    )


class ResummariseForm(InstructedForm):
    """What the new version should pay attention to, and which profile makes it.

    The summary's own instructions stand in it, for who may see texts; a text that a person wrote is
    replaced where that is said.
    """

    profile = forms.ModelChoiceField(
        queryset=CompactionProfile.objects.none(),
        required=False,
        empty_label="The profile of the branch",
        help_text="Which parameters and which summarising model make it.",
    )
    replace_edited = forms.BooleanField(
        label="Replace the text that a person wrote",
        help_text="It stays stored as a version and can be activated again.",
    )

    def __init__(
        self, *args: Any, request: HttpRequest, summary: SessionSummary, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if may_see_texts(request):
            self.fields["instructions"].initial = summary.instructions
        else:
            self.fields["instructions"].help_text += " Those of the summary count where it is."
        if not summary.is_edited:
            del self.fields["replace_edited"]
        chosen: Any = self.fields["profile"]
        chosen.queryset = CompactionProfile.objects.filter(is_current=True).order_by("name")


class RestoreForm(AgainForm):
    """Whether newer summaries, which were built on this one, are taken back too."""

    field_order: tuple[str, ...] = ("cascade", "compact_again", "instructions")

    cascade = forms.BooleanField(
        required=False,
        label="Take back all newer summaries that were built on it, too",
        help_text="Without this, a summary that others were built on stays as it is.",
    )


def asked_of_run(request: HttpRequest, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is told that makes a summary again.

    Who may not see the instructions cannot mean to take them away.
    """
    told = asked["instructions"]
    return {
        "profile": asked["profile"],
        "instructions": told if told or may_see_texts(request) else None,
        "replace_edited": asked.get("replace_edited", False),
    }


def refuse_draft(summary: SessionSummary) -> None:
    """Raise CompactionError for a draft: it covers nothing that could be sent again."""
    if summary.status == Status.DRAFT:
        raise CompactionError(
            "It is a draft and not sent yet: its messages are sent verbatim, so there is nothing "
            "to take back or to make again. When a rule asks for it, it counts; then it can be."
        )


def taken_back(restored: Restored) -> SafeString:
    """Return the sentence for summaries that no longer count."""
    first = restored.summaries[0]
    more = len(restored.summaries) - 1
    others = f" and {more} newer {'summary' if more == 1 else 'summaries'}" if more else ""
    count = sum(summary.message_count for summary in restored.summaries)
    return format_html(
        "{}{} no longer cover{} {} {} sent verbatim again{}.",
        html.row_link(first),
        others,
        "" if more else "s",
        "their" if more else "its",
        formatting.plural(count, "message") + (": it is" if count == 1 else ": they are"),
        f", held {until_words(restored.state)}" if restored.state.is_held else "",
    )


def _make_resummarise(
    request: HttpRequest, summary: SessionSummary, data: Any
) -> forms.Form | None:
    if summary.status != Status.ACTIVE:
        return None
    return ResummariseForm(data, request=request, summary=summary)


def _resummarise(
    request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]
) -> SafeString:
    try:
        run = resummarize(
            summary, background=True, requested_by=request.user, **asked_of_run(request, asked)
        )
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal
    return queued(run)


def _make_restore(request: HttpRequest, summary: SessionSummary, data: Any) -> forms.Form | None:
    # The summary of a branch that was left hides nothing that could be sent again.
    if summary.status != Status.ACTIVE or summary.kind == SessionSummary.Kind.BRANCH:
        return None
    return RestoreForm(data, may_compact=may_run(request))


def _restore(request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]) -> SafeString:
    try:
        restored = restore_summary(summary, cascade=asked["cascade"], by=request.user)
        return after_restore(request, summary, asked, taken_back(restored))
    except REFUSALS as refusal:
        raise RefusedError(str(refusal)) from refusal


def _before_restore(
    request: HttpRequest, summary: SessionSummary, asked: dict[str, Any]
) -> list[SafeString | str]:
    try:
        return words_before(request, summary, asked)
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
    confirm=_before_restore,
    help="The summary stays stored but is sent no more: its messages are sent verbatim again, and "
    "held. Before it is done, a page says what the next turn would do.",
)


def _telling(do: Do) -> Do:
    """Make what a service refuses the form's own error: its text is a sentence."""

    def told(request: HttpRequest, session: Session, data: dict[str, Any]) -> SafeString | str:
        try:
            return do(request, session, data)
        except REFUSALS as refusal:
            raise RefusedError(str(refusal)) from refusal

    return told


# --- compact now ----------------------------------------------------------------------------------


class CompactForm(InstructedForm):
    """What a run by hand may be told."""

    keep_last_n = forms.IntegerField(
        required=False,
        min_value=_KEEP["minimum"],
        max_value=_KEEP["maximum"],
        label="Messages that stay verbatim",
        help_text="The newest ones; empty: as the profile says.",
    )
    force = forms.BooleanField(
        required=False,
        label="Even where the next request becomes no smaller",
        help_text="Otherwise such a run is skipped.",
    )


def compact(
    request: HttpRequest, session: Session, *, force: bool = False, **told: Any
) -> SafeString:
    """Queue a run by hand that is told so much and say so; raises one of acting.REFUSALS."""
    snapshot = snapshot_of(session)
    run = request_run(
        RunRequest(
            session=session,
            branch=snapshot.branch,
            trigger=CompactionRun.Trigger.MANUAL,
            reason=Reason.FORCED if force else Reason.MANUAL,
            profile=snapshot.profile_row,
            background=True,
            requested_by=request.user,
            **told,
        )
    )
    return queued(run)


def _make_compact(request: HttpRequest, session: Session, data: Any) -> forms.Form | None:
    if session.active_branch_id is None:
        return None
    return CompactForm(data, auto_id="compact_%s")


# --- make the newest summary again ----------------------------------------------------------------


def redo(
    request: HttpRequest,
    session: Session,
    *,
    instructions: str | None = None,
    profile: CompactionProfile | None = None,
    replace_edited: bool = False,
) -> SafeString:
    """Queue a new version of the newest summary that is sent, and say so.

    Raises one of acting.REFUSALS, also where there is no summary.
    """
    sent = snapshot_of(session).summaries
    if not sent:
        raise CompactionError("It has no active summary yet; compact it first.")
    run = resummarize(
        sent[-1],
        profile=profile,
        instructions=instructions,
        replace_edited=replace_edited,
        background=True,
        requested_by=request.user,
    )
    return queued(run)


def _make_redo(request: HttpRequest, session: Session, data: Any) -> forms.Form | None:
    rows = newest_summaries_of(request, session)
    if not rows:
        return None
    return ResummariseForm(data, request=request, summary=rows[0], auto_id="redo_%s")


# --- change the profile ---------------------------------------------------------------------------


class ProfileForm(forms.Form):
    """Which profile the session uses from now on."""

    profile = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["profile"]
        field.choices = [("", "The default"), *((name, name) for name in names)]


def _make_profile(request: HttpRequest, session: Session, data: Any) -> forms.Form | None:
    if session.active_branch_id is None:
        return None
    own = ""
    if data is None:
        with suppress(*REFUSALS):
            own = view_for(request, session).snapshot.state.profile
    return ProfileForm(data, names=current_names(), initial={"profile": own}, auto_id="profile_%s")


def _change_profile(request: HttpRequest, session: Session, data: dict[str, Any]) -> SafeString:
    assign_profile(session, data["profile"], by=request.user)
    row = find_profile(data["profile"])
    if data["profile"]:
        return format_html("The session uses profile {} from now on.", html.row_link(row))
    return format_html("The session uses the default profile, {}.", html.row_link(row))


# --- restore --------------------------------------------------------------------------------------


class TakeBackForm(RestoreForm):
    """Which summary is taken back: the newest where none is named, as by a single press."""

    field_order = ("summary", "cascade", "compact_again", "instructions")
    summary = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, rows: list[SessionSummary], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = {str(row.pk): row for row in rows}
        field: Any = self.fields["summary"]
        field.choices = [(key, _choice_words(row)) for key, row in self.rows.items()]

    def clean_summary(self) -> str:
        """Return the summary's id."""
        chosen: str = self.cleaned_data["summary"]
        return chosen or next(iter(self.rows))


def _choice_words(row: SessionSummary) -> str:
    first, last = formatting.place(row.covers_from), formatting.place(row.covers_through)
    name = f"{formatting.short_id(row.pk)}{' (digest)' if row.is_digest else ''}"
    return f"{name}: {formatting.plural(row.message_count, 'message')}, positions {first} – {last}"


def _make_take_back(request: HttpRequest, session: Session, data: Any) -> forms.Form | None:
    rows = newest_summaries_of(request, session)
    if not rows:
        return None
    return TakeBackForm(data, rows=rows, may_compact=may_run(request), auto_id="restore_%s")


def _chosen(data: dict[str, Any]) -> SessionSummary:
    rows = SessionSummary.objects.select_related("branch", "session")
    return rows.get(pk=data["summary"])


def _take_back(request: HttpRequest, session: Session, data: dict[str, Any]) -> SafeString:
    summary = _chosen(data)
    restored = restore_summary(summary, cascade=data["cascade"], by=request.user)
    return after_restore(request, summary, data, taken_back(restored))


def _before_take_back(
    request: HttpRequest, session: Session, data: dict[str, Any]
) -> list[SafeString | str]:
    return _before_restore(request, _chosen(data), data)


# --- what the forms choose from -------------------------------------------------------------------


def may_change_profile(request: HttpRequest) -> bool:
    """Whether the operator may give a session a profile: `change compaction state`."""
    return holds(request, "compaction.change_compactionstate")


SESSION_FORMS = {
    "compact": PageForm(
        label="Compact now",
        make=_make_compact,
        do=_telling(lambda request, session, data: compact(request, session, **data)),
        may=may_run,
        help="A worker summarises everything but the newest messages, whatever the triggers say.",
    ),
    "resummarise": PageForm(
        label="Re-summarise the newest summary",
        make=_make_redo,
        do=_telling(
            lambda request, session, data: redo(request, session, **asked_of_run(request, data))
        ),
        may=may_run,
        help="A worker makes a new version from the same messages; the old one stays to compare.",
    ),
    "profile": PageForm(
        label="Change profile",
        make=_make_profile,
        do=_telling(_change_profile),
        may=may_change_profile,
        help="It counts for all branches of the session, from the next request on.",
    ),
    "restore": PageForm(
        label="Restore the messages of a summary",
        make=_make_take_back,
        do=_telling(_take_back),
        may=may_restore,
        confirm=_before_take_back,
        help="Nothing is deleted: the summary stays, its messages are sent verbatim again, and "
        "held. Before it is done, a page says what the next turn would do.",
    ),
    **HOLD_FORMS,
}

"""Re-summarising all sessions of a filter: the page that asks, and the job's page with its ways."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import IN_SESSION, SHORT_ID, column, table_of, text_cell
from chatapp.admin.toolkit.lists import one_row
from chatapp.admin.toolkit.model_admin import ReadOnlyAdmin, WideList
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, link_for, may_run, may_see_texts
from chatapp.formatting import when
from chatapp.ids import id_q
from chatapp.models import Session
from compaction.admin.actions import for_each
from compaction.errors import CompactionError
from compaction.models import BulkItem, BulkJob, CompactionProfile
from compaction.runs.bulk import (
    BulkSums,
    cancel_bulk,
    make_bulk,
    pause_bulk,
    roll_back_bulk,
    start_bulk,
    sums_of_job,
)
from compaction.runs.redo import sessions_with_summaries

Status, ItemStatus = BulkJob.Status, BulkItem.Status
NEW = "compaction_bulk_new"
PROBLEMS_SHOWN = 50
TROUBLES = (ItemStatus.FAILED, ItemStatus.BUSY, ItemStatus.KEPT)
_TONES = {
    Status.PLANNING: "busy",
    Status.RUNNING: "busy",
    Status.ROLLING_BACK: "busy",
    Status.DONE: "good",
}
# What may be done in which state; all of it may be done by whoever may start runs.
_BUTTONS = {
    Status.PLANNING: ["cancel"],
    Status.PLANNED: ["start", "cancel"],
    Status.RUNNING: ["pause", "cancel"],
    Status.PAUSED: ["start", "cancel", "roll_back"],
    Status.DONE: ["roll_back"],
    Status.CANCELLED: ["roll_back"],
}


def bulk_links(request: HttpRequest) -> list[Link]:
    """Return the way from a list of sessions to doing all of them, for whoever may start runs."""
    if not may_run(request):
        return []
    address, asked = reverse(f"admin:{NEW}"), request.GET.urlencode()
    url = f"{address}?{asked}" if asked else address
    return [Link(label="Re-summarise all of these…", url=url)]


class BulkForm(forms.Form):
    """How the summaries of the chosen sessions are made again."""

    profile = forms.ModelChoiceField(
        queryset=CompactionProfile.objects.none(),
        required=False,
        empty_label="Each session's own",
        help_text="Which parameters and which summarising model make them.",
    )
    force = forms.BooleanField(
        required=False,
        label="Make again what was made with the same profile, model and prompts, too",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen: Any = self.fields["profile"]
        chosen.queryset = CompactionProfile.objects.filter(is_current=True).order_by("name")


def chosen_sessions(request: HttpRequest) -> QuerySet[Session]:
    """Return all sessions that the list of sessions holds for this address, not a page of them.

    Raises IncorrectLookupParameters where the address asks for what cannot be.
    """
    pages: Any = admin.site.get_model_admin(Session)
    found: QuerySet[Session] = pages.get_changelist_instance(request).get_queryset(request)
    return found


def new_view(request: HttpRequest) -> HttpResponse:
    """Say how many sessions there are and ask; POST stores the job, whose price is worked out."""
    pages = admin.site.get_model_admin(Session)
    if not (may_run(request) and pages.has_view_permission(request)):
        raise PermissionDenied
    list_address = reverse("admin:chatapp_session_changelist")
    try:
        sessions = chosen_sessions(request)
    except IncorrectLookupParameters:
        return HttpResponseRedirect(list_address)
    form = BulkForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            job = make_bulk(
                sessions,
                chosen_by=request.GET.urlencode(),
                profile=form.cleaned_data["profile"],
                force=form.cleaned_data["force"],
                requested_by=request.user,
            )
            return HttpResponseRedirect(html.change_url(BulkJob, job.pk))
        except CompactionError as refusal:
            messages.error(request, str(refusal))
    keys = sessions.order_by().values("pk")
    asked = request.GET.urlencode()
    context = {
        **admin.site.each_context(request),
        "title": "Re-summarise all sessions of a list",
        "form": form,
        "sessions": sessions.order_by().count(),
        "with_summaries": sessions_with_summaries().filter(pk__in=keys).count(),
        "list_address": f"{list_address}?{asked}" if asked else list_address,
        "is_filtered": bool(asked),
    }
    return TemplateResponse(request, "admin/compaction/bulk_new.html", context)


Do = Callable[[BulkJob], None]


@admin.register(BulkJob)
class BulkJobAdmin(WideList):
    """The sessions of one filter whose summaries are made again, in the background."""

    list_display = ("short_id", "created_at", "status_shown", "by_shown", "profile_shown", "ended")
    list_select_related = ("requested_by", "profile")
    list_filter = ("status",)
    list_only = ("status", "requested_by__username", "profile__name", "profile__version")
    id_paths = ("id",)
    session_path = "items__session"
    search_help_text = "The beginning or end of an id."
    actions = ("start", "pause", "cancel", "roll_back")
    sections = (
        Section(
            title=None,
            fields=(
                "short_id",
                "status_shown",
                "by_shown",
                "profile_shown",
                "force",
                "chosen_list",
            ),
        ),
        Section(title="Times", fields=("created_at", "started_at", "finished_at")),
    )

    short_id = SHORT_ID
    status_shown = column(
        "Status",
        lambda job: html.badge(job.get_status_display(), _TONES.get(job.status, "")),
    )
    by_shown = column("Asked by", lambda job: job.requested_by or "—")
    profile_shown = column("Profile", lambda job: job.profile or "Each session's own")
    ended = column("Ended", "finished_at", when)

    @admin.display(description="Chosen by")
    def chosen_list(self, job: BulkJob) -> SafeString | str:
        """Return the way to the list that chose the sessions, as it is now."""
        url = reverse("admin:chatapp_session_changelist")
        if not job.chosen_by:
            return html.link("all sessions", url)
        return html.link("the list of sessions with this filter", f"{url}?{job.chosen_by}")

    def search_q(self, request: HttpRequest, wanted: str) -> Any:
        """Search ids by beginning and end."""
        return id_q(BulkJob, wanted, "id")

    # --- actions ----------------------------------------------------------------------------------

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may start runs."""
        return may_run(request)

    def _tell(self, request: HttpRequest, rows: QuerySet[BulkJob], do: Do, told: str) -> None:
        def act(job: BulkJob) -> str:
            do(job)
            return told

        for_each(request, self.chosen(request, rows), act, names_rows=True)

    def buttons_for(self, request: HttpRequest, obj: BulkJob) -> list[str]:
        """Return what makes sense in the job's state."""
        buttons = _BUTTONS.get(Status(obj.status), [])
        return [name for name in buttons if name != "roll_back" or obj.started_at is not None]

    @admin.action(description="Start", permissions=["run"])
    def start(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        """Have priced or paused jobs worked at."""
        self._tell(request, queryset, start_bulk, "It runs: a worker takes one session at a time.")

    @admin.action(description="Pause", permissions=["run"])
    def pause(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        """Have nobody work at jobs until they are started again."""
        told = "It is paused. The summary that is being made is finished first."
        self._tell(request, queryset, pause_bulk, told)

    @admin.action(description="Cancel", permissions=["run"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        """End jobs; what was made stays."""
        told = "It is cancelled. What was made stays, until it is rolled back."
        self._tell(request, queryset, cancel_bulk, told)

    @admin.action(description="Roll back", permissions=["run"])
    def roll_back(self, request: HttpRequest, queryset: QuerySet[BulkJob]) -> None:
        """Have the versions count again that counted before the jobs."""
        told = "A worker puts back the versions that counted before, one session at a time."
        self._tell(request, queryset, partial(roll_back_bulk, by=request.user), told)

    # --- page -------------------------------------------------------------------------------------

    def live_words(self, request: HttpRequest, obj: BulkJob) -> str:
        """Say how far it is while it is worked at, also by who finishes what was begun."""
        if obj.is_worked_at:
            return progress_words(obj, sums_of_job(obj))
        return "The summary that is being made is finished first." if obj.is_finishing else ""

    def notices_for(self, request: HttpRequest, obj: BulkJob) -> list[SafeString | str]:
        """Say why a job paused by itself, and what a priced one waits for."""
        if obj.status == Status.PLANNED:
            return ["Nothing is asked of a model yet: look at the price below, then start it."]
        if not obj.note:
            return []
        # It quotes what a server said, which may quote what it was sent.
        return [obj.note if may_see_texts(request) else f"It paused by itself. {TEXTS_HIDDEN}"]

    def links_for(self, request: HttpRequest, obj: BulkJob) -> list[Link]:
        """Return the way to all sessions of the job."""
        return [Link.to_list("Sessions of the job", BulkItem, job__id__exact=obj.pk)]

    def panels_for(self, request: HttpRequest, obj: BulkJob) -> list[Panel]:
        """Return the price, and how far it is."""
        return [progress_panel(obj, sums_of_job(obj))]

    def tables_for(self, request: HttpRequest, obj: BulkJob) -> list[Table]:
        """Return the sessions that need a look."""
        rows = obj.items.filter(status__in=TROUBLES).select_related("session").order_by("pk")
        return [
            table_of(
                "Sessions that did not go as planned",
                rows[:PROBLEMS_SHOWN],
                {
                    "Session": lambda item: link_for(request, item.session),
                    "What became of it": lambda item: item.get_status_display(),
                    "Why": text_cell(lambda item: item.error),
                },
                empty="None.",
            )
        ]


def taken_of(job: BulkJob, sums: BulkSums) -> int:
    """Return how many sessions are behind the work that the job is at."""
    if job.status == Status.PLANNING:
        return sums.total - sums.of(ItemStatus.WAITING)
    if job.status in (Status.ROLLING_BACK, Status.ROLLED_BACK):
        return sums.of(ItemStatus.BACK, ItemStatus.KEPT)
    return sums.total - sums.of(ItemStatus.WAITING, ItemStatus.PLANNED)


def progress_words(job: BulkJob, sums: BulkSums) -> str:
    """Return how far a job is, as a sentence."""
    taken, total = taken_of(job, sums), formatting.plural(sums.total, "session")
    if job.status == Status.PLANNING:
        return f"Working out the price: {taken:,} of {total}."
    if job.status in (Status.ROLLING_BACK, Status.ROLLED_BACK):
        return f"Put back so far: {formatting.plural(taken, 'session')}."
    return f"{taken:,} of {total} taken."


def progress_panel(job: BulkJob, sums: BulkSums) -> Panel:
    """Return the bar, the price of all, and what was done and paid so far."""
    done = (
        ("Done", sums.of(ItemStatus.DONE)),
        ("Nothing to do", sums.of(ItemStatus.NOTHING)),
        ("Left alone: busy", sums.of(ItemStatus.BUSY)),
        ("Failed", sums.of(ItemStatus.FAILED)),
        ("Put back", sums.of(ItemStatus.BACK)),
        ("Could not be put back", sums.of(ItemStatus.KEPT)),
    )
    taken = taken_of(job, sums)
    body = render_to_string(
        "admin/compaction/bulk_progress.html",
        {
            "words": progress_words(job, sums),
            "bar": html.bar(taken, sums.total, f"{taken:,} of {sums.total:,} sessions"),
            "counts": [(name, f"{count:,}") for name, count in done if count],
            "rows": [
                ("Summaries", f"{sums.planned_summaries:,}", f"{sums.summaries:,}"),
                ("Tokens read", f"{sums.planned_tokens:,}", f"{sums.tokens:,}"),
                ("Model calls", f"{sums.planned_calls:,}", f"{sums.calls:,}"),
                ("Cost", formatting.money(sums.planned_cost), formatting.money(sums.cost)),
            ],
            "is_priced": job.status != Status.PLANNING,
        },
    )
    return Panel(title="Price and progress", body=body)


@admin.register(BulkItem)
class BulkItemAdmin(ReadOnlyAdmin):
    """One session of a job: its price, and what came of it."""

    list_display = ("number", "in_session", "status_shown", "price", "made", "paid", "error_start")
    list_select_related = ("session",)
    list_filter = (one_row(BulkJob, "job"), one_row(Session, "session"), "status")
    list_only = (
        "status", "planned_summaries", "planned_cost", "summaries", "cost", "error", "job",
    )  # fmt: skip
    # Keys count up in the order in which the sessions are taken.
    ordering = ("-id",)
    sortable_by = ()
    id_paths = ("session",)
    sections = (
        Section(title=None, fields=("job", "in_session", "status_shown", "error_shown")),
        Section(title="Price", fields=("planned_summaries", "planned_tokens", "planned_calls")),
        Section(title="Made", fields=("summaries", "tokens", "calls", "begun_at", "ended_at")),
    )

    number = column("No.", "pk", str)
    in_session = IN_SESSION
    status_shown = column("Status", lambda item: str(item.get_status_display()))
    price = column(
        "Price",
        lambda item: f"{item.planned_summaries:,} to make, {formatting.money(item.planned_cost)}",
    )
    made = column("Made", "summaries", formatting.number)
    paid = column("Paid", "cost", formatting.money)
    error_start = column("Why", "error", html.preview, is_text=True)
    error_shown = column("Why", "error", html.stored_text)

    def links_for(self, request: HttpRequest, obj: BulkItem) -> list[Link]:
        """Return the ways to the job and the session."""
        return [
            Link.to("Job", BulkJob, obj.job_id),
            Link.to("Session", Session, obj.session_id),
        ]

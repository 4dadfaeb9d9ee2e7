"""States: how far each branch is summarised, and who works on it."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.filters import one_row
from chatapp.admin.parts import Link, Panel, Section, Table
from chatapp.admin.wide_list import WideList
from chatapp.formatting import clock
from chatapp.models import Session
from compaction.admin.acting import REFUSALS
from compaction.admin.filters import Activity
from compaction.admin.session.state_panel import state_panel
from compaction.admin.tables import run_table
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionRun, CompactionState

RUNS_SHOWN = 10


@admin.register(CompactionState)
class CompactionStateAdmin(WideList):
    """One row a branch, written by the services alone."""

    list_display = (
        "of_branch",
        "in_session",
        "activity",
        "reach",
        "covered",
        "profile_name",
        "failures",
        "asked_again",
        "looks_again",
        "last_consolidated_at",
    )
    list_select_related = ("branch__session",)
    list_filter = (one_row(Session, "branch__session"), Activity, "pending")
    ordering = ("-branch__created_at", "-pk")
    sortable_by = ()
    list_only = (
        "profile",
        "cursor",
        "covered_messages",
        "covered_tokens",
        "failures",
        "pending",
        "last_consolidated_at",
        "lease_owner",
        "lease_expires_at",
        "backoff_until",
        "look_again_at",
        "branch__kind",
        "branch__message_count",
        "branch__session__title",
    )
    id_paths = ("branch", "branch__session")
    session_path = "branch__session"
    search_help_text = (
        "The beginning of a branch's or session's id, a session's title or its owner."
    )
    sections = (
        Section(title=None, fields=("branch", "in_session", "profile_name")),
        Section(title="Summarised", fields=("reach", "covered", "last_consolidated_at")),
        Section(
            title="Work",
            fields=("activity", "lease_owner", "lease_expires_at", "asked_again"),
        ),
        Section(title="Later", fields=("failures", "backoff_until", "look_again_at")),
    )

    class Media:
        css = {"all": ["compaction/session.css"]}

    @admin.display(description="Branch")
    def of_branch(self, state: CompactionState) -> str:
        """Return the branch's name."""
        return str(state.branch)

    @admin.display(description="Session")
    def in_session(self, state: CompactionState) -> str:
        """Return a link to the session."""
        return cells.session_link(state.branch.session)

    @admin.display(description="Now")
    def activity(self, state: CompactionState) -> SafeString | str:
        """Return whether a worker holds the branch, or automatic runs wait after failures."""
        if state.is_consolidating:
            return cells.badge("Compacting", "busy")
        if state.backoff_until is not None and state.backoff_until > timezone.now():
            return cells.badge(f"Backs off until {clock(state.backoff_until)}", "bad")
        return "Idle"

    @admin.display(description="Up to position")
    def reach(self, state: CompactionState) -> str:
        """Return the cursor."""
        return formatting.place(state.cursor)

    @admin.display(description="Summarised")
    def covered(self, state: CompactionState) -> str:
        """Return how many of the branch's messages are summarised, and their tokens."""
        count = f"{state.covered_messages:,} of {state.branch.message_count:,} messages"
        return f"{count}, {state.covered_tokens:,} tokens"

    @admin.display(description="Asked again")
    def asked_again(self, state: CompactionState) -> str:
        """Return whether somebody asked while a worker held the branch."""
        return "yes" if state.pending else "no"

    @admin.display(description="Looked at again")
    def looks_again(self, state: CompactionState) -> str:
        """Return when time alone may make a compaction due."""
        return clock(state.look_again_at)

    @admin.display(description="Profile")
    def profile_name(self, state: CompactionState) -> str:
        """Return the branch's own profile, if it has one."""
        return state.profile or "default"

    def links_for(self, request: HttpRequest, obj: CompactionState) -> list[Link]:
        """Return the way to the session."""
        return [Link(label="Session", url=cells.change_url(Session, obj.branch.session_id))]

    def panels_for(self, request: HttpRequest, obj: CompactionState) -> list[Panel]:
        """Return how far the triggers are and what waits; a sentence where nobody can tell."""
        try:
            snapshot = snapshot_of(obj.branch.session, obj.branch)
            return [state_panel(snapshot, "What the branch waits for")]
        except REFUSALS as refusal:
            sentence = format_html('<p class="panel-more">{}</p>', refusal)
            return [Panel(title="What the branch waits for", body=sentence)]

    def tables_for(self, request: HttpRequest, obj: CompactionState) -> list[Table]:
        """Return the branch's newest runs."""
        runs = CompactionRun.objects.filter(
            session_id=obj.branch.session_id, branch_id=obj.branch_id
        )
        return [run_table("Newest runs", runs.order_by("-created_at", "-id")[:RUNS_SHOWN])]

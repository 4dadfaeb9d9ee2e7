"""States: how far each branch is summarised, who works on it, and what it waits for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import column, person
from chatapp.admin.toolkit.lists import one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.path_pages import place_url
from chatapp.admin.toolkit.permissions import nameless, nameless_link
from chatapp.database import database_now
from chatapp.formatting import clock, plural, when
from chatapp.models import POSITION_STEP, Session
from compaction.admin.actions import REFUSALS
from compaction.admin.lists import BY_ACTIVITY, run_table
from compaction.admin.workers import is_silent
from compaction.branches.holds import until_words
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.policy.reasons import Reason, reason_label, reason_measures
from compaction.engine.policy.window import batch_size, uses_digest
from compaction.models import CompactionRun, CompactionState, SessionSummary, WorkerHeartbeat
from compaction.runs.status import branch_facts

RUNS_SHOWN = 10

Line = tuple[str, SafeString | str]
HOST_CHARS = 60


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
    list_filter = (one_row(Session, "branch__session"), BY_ACTIVITY, "recheck_requested")
    ordering = ("-branch__created_at", "-pk")
    sortable_by = ()
    list_only = (
        "profile",
        "covered_messages",
        "covered_tokens",
        "recheck_requested",
        "lease_owner",
        "lease_expires_at",
        "backoff_until",
        "hold_through",
        "hold_end",
        "held_until",
        "branch__kind",
        "branch__label",
        "branch__message_count",
        "branch__session__title",
    )
    id_paths = ("branch", "branch__session")
    session_path = "branch__session"
    search_help_text = (
        "The beginning or end of a branch's or session's id, a session's title or its owner."
    )
    sections = (
        Section(title=None, fields=("branch", "in_session", "profile_name")),
        Section(title="Summarised", fields=("reach", "covered", "last_consolidated_at")),
        Section(
            title="Work",
            fields=("activity", "lease_owner_shown", "lease_expires_at", "asked_again"),
        ),
        Section(
            title="Hold of a restore",
            fields=("held_through", "held_by_shown", "held_at", "held_until"),
        ),
        Section(title="Later", fields=("failures", "backoff_until", "next_check_at")),
    )

    class Media:
        css = {"all": ["compaction/session.css"]}

    of_branch = column("Branch", "branch", str, instead=nameless)
    in_session = column("Session", "branch.session", html.session_link, instead=nameless_link)

    @admin.display(description="Now")
    def activity(self, state: CompactionState) -> SafeString | str:
        """Return whether a worker has the branch, automatic runs wait, or a person holds it."""
        if state.is_consolidating:
            return html.badge("Compacting", "busy")
        if state.backoff_until is not None and state.backoff_until > database_now():
            return html.badge(f"Backs off until {clock(state.backoff_until)}", "bad")
        if state.is_held:
            return html.badge(f"Held {until_words(state)}", "busy")
        return "Idle"

    lease_owner_shown = column("Lease owner", "lease_owner", html.short_id)
    reach = column("Up to position", "cursor", formatting.place)
    held_through = column("Held through position", "hold_through", formatting.place)
    held_by_shown = person("Held by", "held_by")

    @admin.display(description="Summarised")
    def covered(self, state: CompactionState) -> str:
        """Return how many of the branch's messages are summarised, and their tokens."""
        count = f"{state.covered_messages:,} of {plural(state.branch.message_count, 'message')}"
        return f"{count}, {plural(state.covered_tokens, 'token')}"

    asked_again = column("Asked again", lambda state: "yes" if state.recheck_requested else "no")
    looks_again = column("Looked at again", "next_check_at", clock)
    profile_name = column("Profile", lambda state: state.profile or "default")

    def links_for(self, request: HttpRequest, obj: CompactionState) -> list[Link]:
        """Return the way to the session."""
        return [Link.to("Session", Session, obj.branch.session_id)]

    def panels_for(self, request: HttpRequest, obj: CompactionState) -> list[Panel]:
        """Return how far the triggers are and what waits; a sentence where nobody can tell."""
        try:
            snapshot = snapshot_of(obj.branch.session, obj.branch)
            return [state_panel(snapshot, "What the branch waits for")]
        except REFUSALS as refusal:
            return [Panel.saying("What the branch waits for", refusal)]

    def tables_for(self, request: HttpRequest, obj: CompactionState) -> list[Table]:
        """Return the branch's newest runs."""
        runs = CompactionRun.objects.filter(
            session_id=obj.branch.session_id, branch_id=obj.branch_id
        )
        return [run_table("Newest runs", runs.order_by("-created_at", "-id")[:RUNS_SHOWN])]


def state_panel(snapshot: BranchSnapshot, title: str = "Compaction of the active branch") -> Panel:
    """Return the panel of a branch's state."""
    facts = branch_facts(snapshot)
    body = render_to_string(
        "admin/compaction/state.html",
        {
            "lines": _lines(snapshot, facts),
            "triggers": trigger_rows(snapshot, facts["triggers"]),
            "is_enabled": snapshot.profile.enabled,
        },
    )
    return Panel(title=title, body=body)


def _lines(snapshot: BranchSnapshot, facts: dict[str, Any]) -> list[Line]:
    state = snapshot.state
    lines: list[Line] = [
        ("Summarised", _covered(snapshot)),
        ("Last message summarised (last_consolidated)", _last(snapshot)),
        ("Last compaction or restore (last_consolidated_at)", when(state.last_consolidated_at)),
        *backlog_lines(snapshot),
        ("Profile", profile_words(snapshot)),
        ("Now (is_consolidating)", activity(snapshot)),
        (
            "Asked again (pending_consolidation)",
            "yes: it is looked at again" if facts["recheck_requested"] else "no",
        ),
        ("Due", _due_words(snapshot, facts["due"])),
    ]
    if facts["hold"] is not None:
        lines.insert(0, ("Held", facts["hold"]["text"]))
    if facts["draft"] is not None:
        lines.append(("Draft", _draft_words(facts["draft"])))
    if facts["cache"] is not None:
        lines.append(("Prompt cache", _cache_words(facts["cache"])))
    if state.next_check_at is not None:
        lines.append(("Looked at again", next_check_words(snapshot)))
    return lines


def _covered(snapshot: BranchSnapshot) -> str:
    state = snapshot.state
    if not state.cursor:
        return "Nothing yet."
    return (
        f"Up to position {formatting.place(state.cursor)}: "
        f"{plural(state.covered_messages, 'message')}, {plural(state.covered_tokens, 'token')}."
    )


def _last(snapshot: BranchSnapshot) -> SafeString | str:
    """Return the newest summarised message: its index and sequence id, a link to it."""
    state, session = snapshot.state, snapshot.session
    if not state.cursor:
        return "—"
    told = f"index {state.covered_messages:,}, sequence id {state.cursor / POSITION_STEP:.6f}"
    if session.active_branch_id != snapshot.branch.pk:
        return told
    return html.link(told, place_url(session.pk, state.cursor))


def _cache_words(clock: dict[str, Any]) -> str:
    """Return how far away both moments of the prompt cache's clock are."""
    fires, expires = clock["fires_in_seconds"], clock["expires_in_seconds"]
    if not expires:
        return "The server has forgotten the last request's prompt."
    due = f"in {plural(fires, 'second')}" if fires else "now"
    return (
        f"It expires in {plural(expires, 'second')}; with enough characters in the history a run "
        f"is due {due}."
    )


def _draft_words(draft: Any) -> SafeString:
    link = html.link("A summary", html.change_url(SessionSummary, draft))
    return format_html("{} is ready and counts when a rule asks for it.", link)


def next_check_words(snapshot: BranchSnapshot) -> str:
    """Return when time alone may make a compaction due."""
    moment = snapshot.state.next_check_at
    if moment is None:
        return "—"
    if moment <= database_now():
        return "Now: with the next sweep, once a minute."
    return f"At {when(moment)}, also if nothing is said."


def profile_words(snapshot: BranchSnapshot) -> SafeString:
    """Return a link to the profile in force, and whether the session has one of its own."""
    own = "the session's own" if snapshot.state.profile else "the default"
    return format_html("{} ({})", html.row_link(snapshot.profile_row), own)


def _due_words(snapshot: BranchSnapshot, due: str | None) -> SafeString | str:
    if due:
        return html.badge(reason_label(due), "busy")
    if snapshot.gate:
        return snapshot.gate
    if not snapshot.profile.enabled:
        return "Never: the profile is switched off."
    return "No trigger is due."


def activity(snapshot: BranchSnapshot) -> SafeString | str:
    """Return who works on the branch, what waits, and what failed."""
    state = snapshot.state
    sentences: list[SafeString | str] = []
    if state.is_consolidating:
        sentences.append(holder_words(state))
    if state.failures:
        times = "run" if state.failures == 1 else f"{state.failures} runs"
        sentences.append(f"The last {times} failed.")
    if snapshot.backs_off:
        sentences.append(f"Automatic runs wait until {when(state.backoff_until)}.")
    said = format_html_join(" ", "{}", ((sentence,) for sentence in sentences))
    return said or "Nobody works on it."


def trigger_rows(snapshot: BranchSnapshot, rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for every rule in force; one for a maximum age that does not count yet."""
    rows = [_row(snapshot, rule) for rule in rules]
    if any(rule["reason"] == Reason.MAXIMUM_AGE for rule in rules):
        return rows
    return [*rows, *_resting_age(snapshot)]


def _row(snapshot: BranchSnapshot, rule: dict[str, Any]) -> dict[str, Any]:
    name = reason_measures(rule["reason"], has_summary=bool(snapshot.state.cursor))
    now, limit, left = rule["now"], rule["limit"], rule["left"]
    is_age = rule["reason"] == Reason.MAXIMUM_AGE
    said = _age_words(now, limit, left) if is_age else f"{now:,} of {limit:,}; {left:,} to go"
    if rule["waits_for"]:
        said = f"{now:,} of {limit:,}. {rule['waits_for']}"
    return {
        "name": name,
        "bar": html.bar(now, limit, f"{name}: {said}"),
        "words": said,
        "is_due": not left and not rule["waits_for"],
    }


def _age_words(now: int, limit: int, left: int) -> str:
    return f"waited {_span(now)} of {_span(limit)}; {_span(left)} to go"


def _span(seconds: int) -> str:
    return formatting.span_words(timedelta(seconds=seconds))


def _resting_age(snapshot: BranchSnapshot) -> list[dict[str, Any]]:
    """Return the row of a maximum age while too few messages wait for it to count."""
    profile = snapshot.profile
    limit = profile.compression_cooldown_sec
    if not limit or not profile.enabled:
        return []
    name = reason_measures(Reason.MAXIMUM_AGE, has_summary=True)
    said = (
        f"{_span(limit)}; counts when {_wait(profile.minimum_batch)}, "
        f"now {snapshot.waiting:,} {'waits' if snapshot.waiting == 1 else 'wait'}"
    )
    return [{"name": name, "bar": html.bar(0, limit, f"{name}: {said}"), "words": said}]


def has_window(snapshot: BranchSnapshot) -> bool:
    """Whether the profile has a rule about the messages beyond its tail, or limits a run's."""
    profile = snapshot.profile
    return profile.enabled and (profile.counts_window or profile.batch_messages > 0)


def backlog_lines(snapshot: BranchSnapshot) -> list[Line]:
    """Return what waits and how far it is summarised; nothing for profiles without a window."""
    if not has_window(snapshot):
        return []
    lines: list[Line] = [("Waiting beyond the tail", waiting_words(snapshot))]
    if snapshot.waiting:
        lines.append(("Summarised of what left the tail", _progress(snapshot)))
    return lines


def waiting_words(snapshot: BranchSnapshot) -> str:
    """Return how many messages wait, and in how many runs of which size they go."""
    waiting, tail = snapshot.waiting, snapshot.profile.tail
    if not waiting:
        return f"No message: the newest {tail:,} stay verbatim."
    return f"{_wait(waiting)}; {_runs_words(snapshot)}."


def _wait(messages: int) -> str:
    return "1 message waits" if messages == 1 else f"{messages:,} messages wait"


def _runs_words(snapshot: BranchSnapshot) -> str:
    profile, waiting = snapshot.profile, snapshot.waiting
    failures = snapshot.state.failures
    size = batch_size(profile, waiting=waiting, failures=failures)
    runs = math.ceil(waiting / size)
    said = "one run takes all" if runs == 1 else f"about {runs:,} runs of {size:,}"
    if uses_digest(profile, failures):
        return f"{said}; the next one is stored unsummarised, because runs keep failing"
    if size < batch_size(profile, waiting=waiting, failures=0):
        least = profile.smaller_after_failures
        failed = plural(failures, "run")
        return f"{said}, fewer at once because {failed} failed in a row (from {least} on)"
    return said


def _progress(snapshot: BranchSnapshot) -> SafeString:
    covered, waiting = snapshot.state.covered_messages, snapshot.waiting
    words = f"{covered:,} of {covered + waiting:,} messages"
    return format_html("{} {}", words, html.bar(covered, covered + waiting, words))


def holder_words(state: CompactionState) -> SafeString:
    """Return who holds a branch's lease, where, and until when."""
    run = CompactionRun.objects.filter(
        branch=state.branch_id,
        status=CompactionRun.Status.RUNNING,
        worker=state.lease_owner,
    ).only("pk", "status", "created_at")
    found = run.first()
    return format_html(
        "A worker compacts it ({}{}); its lease ends {}.",
        html.row_link(found, "a run"),
        _machine(found) if found is not None else "",
        when(state.lease_expires_at),
    )


def _machine(run: CompactionRun) -> SafeString | str:
    """Return the process that works on a run; nothing where it never gave a sign of life."""
    worker = WorkerHeartbeat.objects.filter(run=run).order_by("-beat_at").first()
    if worker is None:
        return ""
    name = f"process {worker.pid} on {formatting.shortened(worker.host, HOST_CHARS)}"
    silent = f", silent since {when(worker.beat_at)}" if is_silent(worker) else ""
    return format_html(", {}{}", html.row_link(worker, name), silent)

"""What compaction adds to a session's page: panels, tables, forms, the status of each message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import MessageView, SessionAction, SessionPart
from chatapp.admin.toolkit.page_parts import Link, Panel, Table
from chatapp.admin.toolkit.path_pages import place_url
from chatapp.admin.toolkit.permissions import may_run
from chatapp.compiled import compiled_read
from chatapp.context.assembly import Context
from chatapp.models import Session
from chatapp.round_trips import together
from compaction.admin.actions import REFUSALS, for_each
from compaction.admin.branch_view import BranchView, statuses_of, summary_link, view_for
from compaction.admin.bulk import bulk_links
from compaction.admin.comparison import compare_url
from compaction.admin.forms import SESSION_FORMS, compact, redo
from compaction.admin.lists import (
    LONG_SUMMARY,
    UNFINISHED_STATUSES,
    run_table,
    summary_table,
)
from compaction.admin.meter import meter_panel
from compaction.admin.quality_plots import decay_panel
from compaction.admin.session_states import BY_PROFILE, BY_STATE, states_of_sessions
from compaction.admin.states import state_panel
from compaction.admin.timeline_bar import conversation_panel
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.policy.reasons import reason_label
from compaction.engine.rendering import as_sent_text
from compaction.engine.strategies.prompts import escape_tags
from compaction.models import CompactionRun, CompactionState, RecoveryStep, SessionSummary
from compaction.runs.lifecycle import switch_under_way

ROWS_SHOWN = 10


# --- the session's page ---------------------------------------------------------------------------


PANELS: Sequence[Callable[[BranchView], Panel | None]] = (
    meter_panel,
    lambda view: state_panel(view.snapshot),
    conversation_panel,
    decay_panel,
)
"""The panels of a session's page, from above; one line adds one. None: nothing to say."""


def links_of(session: Session) -> list[Link]:
    """Return the ways to runs, summaries, states, and to other profiles."""
    of_session: dict[str, Any] = {"session__id__exact": session.pk}
    return [
        Link.to_list("Runs", CompactionRun, **of_session),
        Link.to_list("Summaries", SessionSummary, **of_session),
        Link.to_list("States", CompactionState, branch__session__id__exact=session.pk),
        Link.to_list("Recovery steps", RecoveryStep, **of_session),
        Link(label="Compare profiles", url=compare_url(session=session), needs_texts=True),
    ]


def under_way_in(session: Session) -> list[Link]:
    """Return the run that is to switch the session to another branch, if there is one."""
    run = switch_under_way(session)
    if run is None:
        return []
    words = f"A switch to another branch is under way ({run.get_status_display().lower()})"
    return [Link.to(words, CompactionRun, run.pk)]


def live_in(session: Session) -> str:
    """Return how far the session's unfinished run is; nothing where there is none."""
    run = _unfinished.first(session=session.pk)
    if run is None:
        return ""
    if run.status == CompactionRun.Status.QUEUED:
        return "A run waits for a worker."
    return f"A run works: {formatting.plural(run.model_calls, 'model call')} so far."


@compiled_read
def _unfinished(*, session: UUID) -> QuerySet[CompactionRun]:
    runs = CompactionRun.objects.filter(session=session, status__in=UNFINISHED_STATUSES)
    return runs.only("status", "error_code", "model_calls").order_by("-status", "created_at")


def panels_of(request: HttpRequest, session: Session) -> list[Panel]:
    """Return the panels in their order; a sentence where the branch cannot be read."""
    try:
        view = view_for(request, session)
        return [panel for draw in PANELS if (panel := draw(view)) is not None]
    except REFUSALS as refusal:
        return [Panel.saying("Compaction", refusal)]


def messages_of(request: HttpRequest, session: Session) -> MessageView | None:
    """Return how messages stand, and the way to the cursor; None where nobody can tell."""
    try:
        view = view_for(request, session)
    except REFUSALS:
        return None
    ways: tuple[Link, ...] = ()
    if view.cursor:
        ways = (Link(label="At the cursor", url=place_url(session.pk, view.cursor)),)
    return MessageView(statuses=partial(statuses_of, view), ways=ways)


def tables_of(session: Session) -> list[Table]:
    """Return the newest runs and summaries."""
    of_session: dict[str, Any] = {"session__id__exact": session.pk}
    runs = _newest_runs.asked(session=session.pk, most=ROWS_SHOWN)
    runs, summaries = together(runs, _newest_summaries.asked(session=session.pk, most=ROWS_SHOWN))
    return [
        run_table(
            "Newest runs",
            runs,
            more=Link.to_list("All runs", CompactionRun, **of_session),
        ),
        summary_table(
            "Newest summaries",
            summaries,
            more=Link.to_list("All summaries", SessionSummary, **of_session),
        ),
    ]


@compiled_read
def _newest_runs(*, session: UUID) -> QuerySet[CompactionRun]:
    return CompactionRun.objects.filter(session=session).order_by("-created_at", "-id")


@compiled_read
def _newest_summaries(*, session: UUID) -> QuerySet[SessionSummary]:
    rows = SessionSummary.objects.filter(session=session).order_by("-created_at", "-id")
    return rows.defer(*LONG_SUMMARY)


# --- actions of the list --------------------------------------------------------------------------


def compact_now(model_admin: Any, request: HttpRequest, sessions: QuerySet[Session]) -> None:
    """Queue a run by hand for every selected session."""
    rows = model_admin.chosen(request, sessions, "active_branch")
    for_each(request, rows, partial(compact, request), names_rows=True)


def resummarise(model_admin: Any, request: HttpRequest, sessions: QuerySet[Session]) -> None:
    """Queue a new version of the newest active summary of every selected session.

    One a session: a branch has one worker at a time, and a second run would find it busy.
    """
    rows = model_admin.chosen(request, sessions, "active_branch")
    for_each(request, rows, partial(redo, request), names_rows=True)


# --- the next request -----------------------------------------------------------------------------


def origins_of(session: Session, context: Context) -> dict[int, SafeString | str]:
    """Return which messages are summaries; one message may hold several, and the prompt."""
    known = context.origin
    snapshot = known if isinstance(known, BranchSnapshot) else snapshot_of(session)
    texts = snapshot.summary_texts
    if snapshot.summaries:
        links = [summary_link(row) for row in snapshot.summaries]
    else:
        links = [
            html.link(f"imported placeholder {row.place}", place_url(session.pk, row.position))
            for row in snapshot.old_placeholders
        ]
    named = list(zip(texts, links, strict=True))
    return _held_by(context, named, prompt=session.system_prompt, memories=snapshot.memories.text)


def origins_then(summaries: Sequence[str], context: Context) -> dict[int, SafeString | str]:
    """Return the same for a past request; what it held is found by the texts of then."""
    ids = [UUID(one) for one in summaries]
    rows = {row.pk: row for row in SessionSummary.objects.filter(pk__in=ids)}
    found = [rows[key] for key in ids if key in rows]
    return _held_by(context, [(row.sent_text, summary_link(row)) for row in found])


def _held_by(
    context: Context,
    named: Sequence[tuple[str, SafeString | str]],
    *,
    prompt: str = "",
    memories: str | None = None,
) -> dict[int, SafeString | str]:
    """Return what stands before the conversation, by the index of its message."""
    found: dict[int, SafeString | str] = {}
    places = context.places or [""] * len(context.messages)
    for index, (message, place) in enumerate(zip(context.messages, places, strict=True)):
        content = str(message.get("content"))
        if place:
            # The conversation begins: what carries summaries stands before it.
            break
        if content == prompt:
            continue
        if content == memories:
            found[index] = "Memories"
            continue
        # In the frame of the built-in renderings, or as a plug-in's sends it.
        held = [link for text, link in named if as_sent_text(text) in content]
        held = held or [link for text, link in named if escape_tags(text) in escape_tags(content)]
        if held:
            merged = prompt and content.startswith(prompt)
            begin = "System prompt and text of " if merged else "Text of "
            said = [(begin, held[0]), *((" and ", link) for link in held[1:])]
            found[index] = format_html_join("", "{}{}", said)
    return found


def notes_on(context: Context) -> list[str]:
    """Say whether a compaction would come first, and who holds the branch."""
    said: list[str] = []
    if reason := context.facts.get("compacts_first"):
        said.append(
            f"A compaction would come first ({reason_label(reason)}): what a turn sends "
            "is then smaller than what stands here."
        )
    if hold := context.facts.get("branch", {}).get("hold"):
        said.append(hold["text"])
    return said


SESSION_PART = SessionPart(
    styles=("compaction/session.css", "compaction/quality.css", "compaction/recovery.css"),
    links=links_of,
    under_way=under_way_in,
    live=live_in,
    panels=panels_of,
    tables=tables_of,
    forms=SESSION_FORMS,
    actions=(
        SessionAction(name="compact_now", label="Compact now", do=compact_now, may=may_run),
        SessionAction(name="resummarise", label="Re-summarise", do=resummarise, may=may_run),
    ),
    states=states_of_sessions,
    filters=(BY_PROFILE, BY_STATE),
    list_links=bulk_links,
    messages=messages_of,
    refusals=REFUSALS,
    origins=origins_of,
    origins_then=origins_then,
    notes=notes_on,
)

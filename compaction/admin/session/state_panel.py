"""What a branch is waiting for: cursor, profile, who works on it, and the distance to triggers."""

from __future__ import annotations

from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Panel
from chatapp.admin.path_page import place_url
from chatapp.formatting import when
from chatapp.models import POSITION_STEP
from compaction import vocabulary
from compaction.admin.session.backlog import Line, backlog_lines
from compaction.admin.session.holder import holder_words
from compaction.admin.session.trigger_rows import trigger_rows
from compaction.branches.snapshot import BranchSnapshot
from compaction.models import SessionSummary
from compaction.runs.status import branch_facts


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
        ("Last compaction (last_consolidated_at)", when(state.last_consolidated_at)),
        *backlog_lines(snapshot),
        ("Profile", profile_words(snapshot)),
        ("Now (is_consolidating)", activity(snapshot)),
        (
            "Asked again (pending_consolidation)",
            "yes: it is looked at again" if facts["pending"] else "no",
        ),
        ("Due", _due_words(snapshot, facts["due"])),
    ]
    if facts["draft"] is not None:
        lines.append(("Draft", _draft_words(facts["draft"])))
    if state.look_again_at is not None:
        lines.append(("Looked at again", look_again_words(snapshot)))
    return lines


def _covered(snapshot: BranchSnapshot) -> str:
    state = snapshot.state
    if not state.cursor:
        return "Nothing yet."
    return (
        f"Up to position {formatting.place(state.cursor)}: {state.covered_messages:,} messages, "
        f"{state.covered_tokens:,} tokens."
    )


def _last(snapshot: BranchSnapshot) -> SafeString | str:
    """Return document 001's `last_consolidated`: index and sequence id, where it can be seen."""
    state, session = snapshot.state, snapshot.session
    if not state.cursor:
        return "—"
    told = f"index {state.covered_messages:,}, sequence id {state.cursor / POSITION_STEP:.6f}"
    if session.active_branch_id != snapshot.branch.pk:
        return told
    return cells.link(told, place_url(session.pk, state.cursor))


def _draft_words(draft: Any) -> SafeString:
    link = cells.link("A summary", cells.change_url(SessionSummary, draft))
    return format_html("{} is ready and counts when a rule asks for it.", link)


def look_again_words(snapshot: BranchSnapshot) -> str:
    """Return when time alone may make a compaction due."""
    moment = snapshot.state.look_again_at
    if moment is None:
        return "—"
    if moment <= timezone.now():
        return "Now: with the next sweep, once a minute."
    return f"At {when(moment)}, also if nothing is said."


def profile_words(snapshot: BranchSnapshot) -> SafeString:
    """Return a link to the profile in force, and whether the session has one of its own."""
    own = "the session's own" if snapshot.state.profile else "the default"
    return format_html("{} ({})", cells.row_link(snapshot.profile_row), own)


def _due_words(snapshot: BranchSnapshot, due: str | None) -> SafeString | str:
    if due:
        return cells.badge(vocabulary.reason_words(due), "busy")
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

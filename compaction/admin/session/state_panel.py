"""What a branch is waiting for: cursor, profile, who works on it, and the distance to triggers."""

from __future__ import annotations

from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.parts import Panel
from compaction.admin import words
from compaction.admin.session.standing import Standing
from compaction.admin.tables import when
from compaction.models import CompactionRun
from compaction.services.describe import branch_facts
from compaction.services.situation import Situation


def state_panel(standing: Standing) -> Panel:
    """Return the panel of the active branch's state."""
    situation = standing.situation
    facts = branch_facts(situation)
    due = facts["due"]
    body = render_to_string(
        "admin/compaction/state.html",
        {
            "lines": [
                ("Summarised", _covered(situation)),
                ("Last compaction", when(situation.state.last_consolidated_at)),
                ("Profile", profile_words(situation)),
                ("Now", activity(situation)),
                ("Asked again", "yes: it is looked at again" if facts["pending"] else "no"),
                ("Due", _due_words(situation, due)),
            ],
            "triggers": [_trigger(situation, rule) for rule in facts["triggers"]],
            "is_enabled": situation.profile.enabled,
        },
    )
    return Panel(title="Compaction of the active branch", body=body)


def _covered(situation: Situation) -> str:
    state = situation.state
    if not state.cursor:
        return "Nothing yet."
    return (
        f"Up to position {cells.place(state.cursor)}: {state.covered_messages:,} messages, "
        f"{state.covered_tokens:,} tokens."
    )


def profile_words(situation: Situation) -> SafeString:
    """Return a link to the profile in force, and whether the session has one of its own."""
    own = "the session's own" if situation.state.profile else "the default"
    return format_html("{} ({})", cells.row_link(situation.profile_row), own)


def _due_words(situation: Situation, due: str | None) -> SafeString | str:
    if due:
        return cells.badge(words.reason_words(due), "busy")
    if not situation.profile.enabled:
        return "Never: the profile is switched off."
    return "No trigger is due."


def activity(situation: Situation) -> SafeString | str:
    """Return who works on the branch, what waits, and what failed."""
    state = situation.state
    sentences: list[SafeString | str] = []
    if state.is_consolidating:
        run = CompactionRun.objects.filter(
            session=situation.session,
            branch=situation.branch,
            status=CompactionRun.Status.RUNNING,
            worker=state.lease_owner,
        ).only("pk", "status", "created_at")
        who = cells.row_link(run.first(), "a run")
        sentences.append(
            format_html(
                "A worker compacts it ({}); its lease ends {}.", who, when(state.lease_expires_at)
            )
        )
    if state.failures:
        times = "run" if state.failures == 1 else f"{state.failures} runs"
        sentences.append(f"The last {times} failed.")
    if situation.backs_off:
        sentences.append(f"Automatic runs wait until {when(state.backoff_until)}.")
    said = format_html_join(" ", "{}", ((sentence,) for sentence in sentences))
    return said or "Nobody works on it."


def _trigger(situation: Situation, rule: dict[str, Any]) -> dict[str, Any]:
    """Return how far away a trigger is, in words and as a small bar."""
    name = words.rule_words(rule["reason"], has_summary=bool(situation.state.cursor))
    now, limit = rule["now"], rule["limit"]
    return {
        "name": name,
        "bar": cells.bar(now, limit, f"{name}: {now:,} of {limit:,}"),
        "words": f"{now:,} of {limit:,}; {rule['left']:,} to go",
        "is_due": not rule["left"],
    }

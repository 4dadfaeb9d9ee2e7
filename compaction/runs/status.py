"""A branch's and a run's state in plain words and numbers, for API, pages and stream events."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from chatapp.context.backend import Switched
from chatapp.llm.tokens import describe_counter
from chatapp.models import POSITION_STEP, Branch, Session
from chatapp.selectors import path_messages
from compaction.branches.cache_clock import clock_facts
from compaction.branches.holds import until_words
from compaction.branches.planning import (
    decision_of,
    due_before_next_turn,
    facts_with_gain,
    rules_of,
)
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.policy.triggers import distances
from compaction.models import CompactionRun
from compaction.runs.holding import hold_facts
from compaction.runs.scheduling import is_worth_a_run
from compaction.selectors import NOTE
from compaction.summaries.drafts import draft_id_of


def run_summary(run: CompactionRun) -> dict[str, Any]:
    """Return the few facts of a run that a waiting client wants to see."""
    told: dict[str, Any] = {
        "run": str(run.pk),
        "status": run.status,
        "reason": run.reason,
        "tokens_before": run.tokens_before,
        "tokens_after": run.tokens_after,
        "error": run.error,
    }
    return told | ({"hold_broken": True} if run.broke_hold else {})


def switched_by(run: CompactionRun, session: Session, branch: Branch) -> Switched:
    """Return what came of a run's switch; the session then knows the branch that is active."""
    session.refresh_from_db(fields=["active_branch", "updated_at"])
    branch.refresh_from_db()
    branch.session = session
    summary = run.summaries.first()
    return Switched(
        branch=branch,
        is_done=session.active_branch_id == branch.pk,
        waits=not run.is_finished,
        run=_switch_run(run),
        summary=None
        if summary is None
        else {
            "id": str(summary.pk),
            "note": summary.metadata.get(NOTE),
            "summary_text": summary.summary_text,
        },
    )


def _switch_run(run: CompactionRun) -> dict[str, Any]:
    columns = ("status", "trigger", "reason", "mode", "error_code", "error")
    return {"id": str(run.pk)} | {name: getattr(run, name) for name in columns}


def switch_facts(run: CompactionRun | None) -> dict[str, Any] | None:
    """Return what waiting clients are told of a switch that is under way."""
    if run is None:
        return None
    return {"run": run.pk, "to": run.switch_to_id, "status": run.status}


def branch_facts(snapshot: BranchSnapshot) -> dict[str, Any]:
    """Return cursor and lease, and which trigger comes next and how far away it is."""
    state = snapshot.state
    facts = facts_with_gain(snapshot, snapshot.whole_facts)
    rules = sorted(distances(snapshot.profile, facts), key=_how_far)
    return {
        "branch": str(state.pk),
        "profile": snapshot.profile_row.name,
        "profile_version": snapshot.profile_row.version,
        "cursor": state.cursor,
        "last_consolidated_at": state.last_consolidated_at,
        "is_consolidating": state.is_consolidating,
        "lease_expires_at": state.lease_expires_at if state.is_consolidating else None,
        "recheck_requested": state.recheck_requested,
        "failures": state.failures,
        "backoff_until": state.backoff_until if snapshot.backs_off else None,
        "next_check_at": state.next_check_at,
        "cache": clock_facts(state, snapshot.profile),
        "waiting": snapshot.waiting,
        "draft": draft_id_of(snapshot) if snapshot.profile.publish_when_needed else None,
        "due": _due(snapshot),
        "gate": snapshot.gate,
        "hold": hold_facts(snapshot),
        "triggers": [_under_hold(snapshot, rule) for rule in rules],
    }


def _under_hold(snapshot: BranchSnapshot, rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule that has reached its limit with the hold that it waits for."""
    in_force = rules_of(snapshot)
    if rule["left"] or in_force is None or rule["reason"] in in_force:
        return rule
    return rule | {"waits_for": f"A person holds the branch {until_words(snapshot.state)}."}


def _due(snapshot: BranchSnapshot) -> str | None:
    """Return the rule that is due; in the background, only one that leads to a run."""
    decision = decision_of(snapshot)
    if decision is None:
        return None
    waits = decision.mode == "background" and not is_worth_a_run(snapshot, decision)
    return None if waits else decision.reason


def last_consolidated(snapshot: BranchSnapshot) -> dict[str, Any] | None:
    """Return the last summarised message: kept as a position, told as id, index and place.

    The index is the number of messages up to it. None before the first summary.
    """
    state = snapshot.state
    if not state.cursor:
        return None
    last = path_messages(snapshot.branch, after=state.cursor - 1, through=state.cursor)
    return {
        "message": last.values_list("pk", flat=True).first(),
        "index": state.covered_messages,
        "sequence_id": Decimal(state.cursor) / POSITION_STEP,
    }


def _how_far(rule: dict[str, Any]) -> tuple[bool, float]:
    """Return the part of the way that a rule has still to go; one that is held back comes last."""
    return bool(rule["waits_for"]), float(rule["left"] / max(1, rule["limit"]))


def context_facts(snapshot: BranchSnapshot) -> dict[str, Any]:
    """Return what GET context/ adds to the account: how it is counted, what was reported, news.

    `request_tokens` is the size that rules look at; `size_by` says whether it is our count of all
    (`count`) or the server's last report and our count of what follows (`usage`).
    """
    decision, size = due_before_next_turn(snapshot), snapshot.reported_size
    return {
        "counted": describe_counter(snapshot.model.counter),
        "reported_tokens": size.reported if size is not None else None,
        "request_tokens": snapshot.request_tokens,
        "size_by": "usage" if uses_report(snapshot) else "count",
        "compacts_first": decision.reason if decision else None,
        "branch": branch_facts(snapshot),
    }


def uses_report(snapshot: BranchSnapshot) -> bool:
    """Whether rules go by what the server reported: the profile asks for it, and a report holds."""
    return snapshot.profile.context_size_by == "usage" and snapshot.reported_size is not None

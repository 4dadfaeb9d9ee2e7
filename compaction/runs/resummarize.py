"""Re-summarising: a new summary over the same messages supersedes the old one, which stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import F, Q, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, NullIf
from django.db.models.lookups import Exact

from chatapp.llm.registry import ModelConfig
from chatapp.models import Session
from compaction.branches.planning import PlanFailed, cut_for_run, decision_of, input_of
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.conf import compaction_settings
from compaction.engine.policy.reasons import Reason
from compaction.engine.registry import STRATEGIES
from compaction.engine.types import Item, SummaryJob
from compaction.errors import CompactionError
from compaction.models import CompactionProfile, CompactionRun, SessionSummary
from compaction.runs import lifecycle
from compaction.runs.redo_estimates import Estimate, priced
from compaction.runs.strategy import parts_turn
from compaction.runs.worker import compact_branch
from compaction.selectors import chain_of, summaries_of
from compaction.summaries.activating import refuse_if_covered
from compaction.summaries.columns import STRATEGY_VERSION
from compaction.summaries.summarising_models import summariser_names, summarising_model
from compaction.summaries.summarizer import summarizer_for

Trigger = CompactionRun.Trigger
# The version of the strategy that made a summary; of its prompts, in older rows.
_SAID = NullIf(KT(f"metadata__{STRATEGY_VERSION}"), Value(""), output_field=TextField())
VERSION = Coalesce(_SAID, F("prompt_version"), output_field=TextField())


def resummarize(
    summary: SessionSummary,
    *,
    profile: CompactionProfile | None = None,
    instructions: str | None = None,
    replace_edited: bool = False,
    background: bool = False,
    requested_by: Any = None,
) -> CompactionRun:
    """Make a new version of an active summary; return the run, queued or finished.

    Without `instructions` those of the summary count again. Raises CompactionError for a summary
    that is not active, and for a text that a person wrote unless `replace_edited`.
    """
    _refuse_what_stays(summary, replace_edited=replace_edited)
    if not background:
        return compact_branch(
            session=summary.session,
            branch=summary.branch,
            trigger=Trigger.RESUMMARIZE,
            reason=Reason.RESUMMARIZE,
            profile=profile,
            instructions=instructions or "",
            replaces_instructions=instructions is not None,
            replaces=summary,
            requested_by=requested_by,
            seconds=compaction_settings.run_seconds,
        )
    snapshot = snapshot_of(summary.session, summary.branch, profile=profile)
    return lifecycle.request_run(
        lifecycle.RunRequest(
            session=summary.session,
            branch=summary.branch,
            trigger=Trigger.RESUMMARIZE,
            reason=Reason.RESUMMARIZE,
            profile=snapshot.profile_row,
            background=True,
            instructions=instructions or "",
            replaces_instructions=instructions is not None,
            replaces=summary,
            requested_by=requested_by,
        )
    )


def _refuse_what_stays(summary: SessionSummary, *, replace_edited: bool) -> None:
    if summary.kind == SessionSummary.Kind.BRANCH:
        raise CompactionError(
            "The summary of a branch is not made again: the conversation goes on from it. Switch "
            "back, and to this branch again, to have the other one summarised as it is now."
        )
    if summary.status != SessionSummary.Status.ACTIVE:
        raise CompactionError(
            f"Only an active summary can be made again; this one is {summary.status}."
        )
    if summary.is_edited and not replace_edited:
        raise CompactionError(
            "A person wrote this text: no program replaces it unless that is asked for. Say so on "
            "the summary's page, or with --replace-edited; the text stays stored as a version."
        )
    refuse_if_covered(summary)


def summaries_to_redo(
    session: Session,
    *,
    profile: CompactionProfile | None = None,
    force: bool = False,
    replace_edited: bool = False,
) -> list[SessionSummary]:
    """Return the active summaries of a session to make again, oldest first.

    Those that a re-summarising made already with the same profile version, model, size,
    temperature and prompts are left out, unless `force`: so a night's work that was broken off goes
    on where it stopped. Texts that people wrote are left alone, unless `replace_edited`.
    """
    snapshot = snapshot_of(session, profile=profile)
    rows = [
        row for row in reversed(chain_of(snapshot.branch)) if replace_edited or not row.is_edited
    ]
    if force or not rows:
        return rows
    done = SessionSummary.objects.filter(
        up_to_date(snapshot), session=session, status=SessionSummary.Status.ACTIVE
    )
    known = set(done.values_list("pk", flat=True))
    return [row for row in rows if row.pk not in known]


def to_redo(snapshot: BranchSnapshot, *, force: bool, replace_edited: bool) -> Q:
    """Return the condition for those of a branch's summaries that summaries_to_redo chooses."""
    wanted = Q(pk__isnull=False) if replace_edited else ~Q(reason=Reason.EDITED)
    return wanted if force else wanted & ~up_to_date(snapshot)


def count_edited(session: Session) -> int:
    """Return how many active summaries of a session's branch have texts that people wrote."""
    return summaries_of(session.branch).filter(reason=Reason.EDITED).count()


def up_to_date(snapshot: BranchSnapshot) -> Q:
    """Return the condition for summaries that a re-summarising made as it would make them now."""
    profile = snapshot.summary_profile
    strategy = STRATEGIES.get(profile.strategy)
    same = Q(
        Exact(VERSION, strategy.version),
        trigger=Trigger.RESUMMARIZE,
        profile=snapshot.profile_row.pk,
    )
    if not strategy.uses_summarizer:
        return same
    return same & Q(
        model__in=summariser_names(snapshot.session, profile),
        target_summary_tokens=profile.target_summary_tokens,
        temperature=profile.temperature,
    )


def estimate_compaction(snapshot: BranchSnapshot) -> Estimate:
    """Return what compacting a branch by hand would read, keep, call and cost.

    Raises CompactionError where the strategy cannot say.
    """
    try:
        cut, items = cut_for_run(snapshot), input_of(snapshot)
    except PlanFailed as failure:
        raise CompactionError(f"{failure} A run would fail.") from failure
    decision = decision_of(snapshot)
    found = _estimate(snapshot, items, previous=snapshot.previous_text)
    return Estimate(
        messages=found.messages,
        tokens=found.tokens,
        calls=found.calls,
        cost=found.cost,
        keep=len(cut.keep),
        reason=decision.reason if decision else "",
    )


def _estimate(snapshot: BranchSnapshot, items: Sequence[Item], *, previous: str) -> Estimate:
    profile = snapshot.summary_profile
    model: ModelConfig = summarising_model(snapshot.session, profile)
    limit = summarizer_for(snapshot.session, profile).input_limit(profile.target_summary_tokens)
    job = SummaryJob(
        items=tuple(items),
        counter=model.counter,
        previous=previous,
        parts_turn=bool(items) and parts_turn(snapshot, items[-1].position),
    )
    strategy = STRATEGIES.get(profile.strategy)
    tokens = sum(item.tokens for item in items)
    return priced(strategy, job, profile, model, limit, len(items), tokens)

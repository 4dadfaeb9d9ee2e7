"""Three layers in one transaction: summary, links, placeholder; with them cursor, state and run.

Everything is checked again inside it by compare and set: who holds the lease, where the cursor
stands, whether the run still runs. A lost race writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from django.db import connection, transaction
from django.db.models import F, IntegerField, QuerySet, Subquery, UUIDField, Value
from django.db.models.functions import Now

from chatapp.database import database_now, update_returning
from chatapp.models import Message
from chatapp.selectors import path_messages, without_pinned_system
from chatapp.transcript import Gap, gap_of, lock_branches, with_gap
from compaction.branches.holds import RELEASED, note_end_of_hold
from compaction.branches.leases import Lease, after_lease
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.types import Outcome
from compaction.errors import LostRaceError
from compaction.models import CompactionRun, CompactionState, SessionSummary
from compaction.models.summaries import (
    NEWEST_VERSION,
    status_columns,
)
from compaction.summaries.columns import (
    Sizes,
    asked_columns,
    format_version_of,
    metadata_of,
    write_placeholder,
)
from compaction.summaries.fidelity import KEPT_MESSAGES, store_fidelity


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The rows of the first and the last message that the summariser received."""

    first: Message
    last: Message
    # Behind the last one, on the run's branch.
    gap: Gap


def hold_positions(run: CompactionRun, outcome: Outcome) -> Ends:
    """Keep the session's positions where they are until the transaction ends.

    Another branch's summary may have renumbered them while this one was being written. Branches are
    locked before states, here and in the transcript, so that two workers never wait for each other.
    """
    lock_branches(run.session_id)
    ends = outcome.items[0].id, outcome.items[-1].id
    first, last = (Message._meta.pk.to_python(end) for end in ends)
    # Behind this position or nowhere: that it still is the last one's is looked at below.
    end = outcome.items[-1].position
    read = Message.objects.only("position", "tokens_through", "chars_through", "created_at")
    found = with_gap(read.filter(pk__in={first, last}), run.branch_id, after=end)
    rows = {row.pk: row for row in found}
    if not {first, last} <= rows.keys() or rows[last].position != end:
        raise LostRaceError(
            "The session's positions were renumbered while the summary was being written; "
            "nothing was stored."
        )
    return Ends(first=rows[first], last=rows[last], gap=gap_of(rows[last]))


def claim_state(lease: Lease, *, cursor: int, changes: dict[str, Any]) -> CompactionState:
    """Change the branch's state, if the lease holds it and the cursor stands where it stood.

    Return it as it is stored then.
    """
    held = CompactionState.objects.filter(
        pk=lease.branch_id,
        lease_owner=lease.owner,
        lease_expires_at__gt=Now(),
        cursor=cursor,
    )
    for state in update_returning(held, **changes):
        return state
    raise LostRaceError(
        "The branch changed hands or its cursor moved while the summary was being written; "
        "nothing was stored."
    )


def link_sources(
    summary: SessionSummary, sources: QuerySet[Message], *, received: Iterable[Any]
) -> None:
    """Link a summary to the messages of a query: exactly those that the summariser received.

    One INSERT … SELECT, so that no row travels through Python. It returns the links that it made,
    and they are held against `received`, the ids of what was read as the database gave them
    (convert.read_items): a message that came in meanwhile, or that was pinned or unpinned into or
    out of the stretch, means LostRaceError, and nothing is stored.
    Call it in the transaction that holds the session's positions.

    In the order of the ids, the indexes of the links and the look-ups of the messages go from page
    to page and do not jump: ten thousand take a third of the time.
    """
    pairs = sources.order_by("pk").values_list(Value(summary.pk, output_field=UUIDField()), "pk")
    select, parameters = pairs.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO session_summary_messages (summary_id, message_id) {select}"
            " RETURNING message_id",
            parameters,
        )
        linked = {message_id for (message_id,) in cursor}
    if linked != set(received):
        raise LostRaceError(
            "The messages that the summariser received are not those that stand there now: "
            "something came in, or was pinned or unpinned, while the summary was being written; "
            "nothing was stored."
        )


Status = SessionSummary.Status
# In `derived` of a snapshot that a summary was stored for: the branch's state as it was stored.
STATE_AFTER = "state_after"


class EndRun(Protocol):
    """Marks the run as succeeded in the transaction that stores; raises LostRaceError.

    `saved` is by how much the next request gets smaller, where the sizes do not tell.
    """

    def __call__(self, outcome: Outcome, sizes: Sizes, *, saved: int | None = None) -> None:
        """End the run."""
        ...


def store_summary(
    *,
    snapshot: BranchSnapshot,
    run: CompactionRun,
    lease: Lease,
    outcome: Outcome,
    sizes: Sizes,
    end_run: EndRun,
) -> SessionSummary:
    """Write a new summary over the outcome's items and move the cursor behind them.

    Raises LostRaceError when lease, cursor or run changed meanwhile; then nothing is written.
    """
    state = snapshot.state
    with transaction.atomic():
        ends = hold_positions(run, outcome)
        passed = path_messages(snapshot.branch, after=state.cursor, through=ends.last.position)
        # Links are checked below: what was passed is what was received, and the rules between.
        after = claim_state(
            lease,
            cursor=state.cursor,
            changes=moved_cursor(passed, ends.last, messages=len(outcome.passed))
            | _failures_left(snapshot, outcome),
        )
        note_end_of_hold(state, run)
        if state.passes_over:
            _supersede_passed_over(run, through=ends.last.position)
        summary = write_summary(
            snapshot,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=sources_of(outcome, passed),
            previous=previous_of(snapshot, outcome),
        )
        end_run(outcome, sizes)
    snapshot.derived[STATE_AFTER] = after
    return summary


def sources_of(outcome: Outcome, passed: QuerySet[Message]) -> QuerySet[Message]:
    """Return the messages that an outcome was made from, of those that the cursor passes over."""
    rows = without_pinned_system(passed)
    # What was dropped stands before them, and nobody has read it.
    return rows.filter(position__gte=outcome.items[0].position) if outcome.dropped else rows


def _supersede_passed_over(run: CompactionRun, *, through: int) -> None:
    """Have summaries of a later program give way to one that was made of their messages again."""
    rows = SessionSummary.objects.filter(
        branch=run.branch_id, status=Status.ACTIVE, kind=SessionSummary.Kind.COMPACTION
    )
    rows = rows.filter(format_version__gt=NEWEST_VERSION, covers_from__lte=through)
    rows.update(**status_columns(Status.SUPERSEDED))


def store_new_version(
    *,
    snapshot: BranchSnapshot,
    run: CompactionRun,
    lease: Lease,
    outcome: Outcome,
    sizes: Sizes,
    end_run: EndRun,
    old: SessionSummary,
    previous: SessionSummary | None,
) -> SessionSummary:
    """Write a new summary over the old one's messages and supersede it; the cursor stays."""
    with transaction.atomic():
        ends = hold_positions(run, outcome)
        claim_state(
            lease,
            cursor=snapshot.state.cursor,
            changes={"recheck_requested": F("recheck_requested")},
        )
        supersede(old)
        summary = write_summary(
            snapshot,
            run,
            outcome,
            sizes,
            ends=ends,
            sources=Message.objects.filter(summary_links__summary=old),
            previous=previous,
            old=old,
        )
        end_run(outcome, sizes, saved=max(0, old.summary_tokens - summary.summary_tokens))
    return summary


def supersede(old: SessionSummary) -> None:
    """Have another version take a summary's place; raise LostRaceError where one has already.

    Call it in the transaction that stores the other version, or activates it.
    """
    columns = status_columns(Status.SUPERSEDED)
    if not SessionSummary.objects.filter(pk=old.pk, status=Status.ACTIVE).update(**columns):
        raise LostRaceError("The summary is no longer active; somebody else replaced it.")
    # A draft continues what was in force when it was made.
    drafts = SessionSummary.objects.filter(branch=old.branch_id, status=Status.DRAFT)
    drafts.update(**columns)


def write_summary(
    snapshot: BranchSnapshot,
    run: CompactionRun,
    outcome: Outcome,
    sizes: Sizes,
    *,
    ends: Ends,
    sources: QuerySet[Message],
    previous: SessionSummary | None,
    old: SessionSummary | None = None,
    is_draft: bool = False,
) -> SessionSummary:
    """Write summary, links and placeholder; `old` is the version that the new one supersedes.

    A draft has no placeholder yet and is not sent. `sources` finds the outcome's messages again, so
    that the database can link them by itself.
    """
    summary = SessionSummary.objects.create(
        session_id=run.session_id,
        branch_id=run.branch_id,
        summary_text=outcome.text,
        message_count=len(outcome.items),
        approx_tokens=outcome.input_tokens,
        metadata=metadata_of(run, outcome, sizes),
        **status_columns(Status.DRAFT if is_draft else Status.ACTIVE),
        trigger=run.trigger,
        reason=run.reason,
        truncated=outcome.truncated,
        is_digest=outcome.is_digest,
        format_version=format_version_of(outcome),
        compression_ratio=sizes.ratio(outcome),
        previous=previous,
        supersedes=old,
        summary_tokens=sizes.summary,
        tokens_before=sizes.before,
        tokens_after=sizes.after,
        cost=outcome.cost,
        instructions=run.instructions,
        instructions_by_id=_author_of_instructions(run),
        run=run,
        profile=run.profile,
        **_kept_with(outcome),
        **_covered(ends, old),
        **asked_columns(snapshot, run, outcome),
    )
    link_sources(summary, sources, received=(item.id for item in outcome.items))
    store_fidelity(summary, outcome, there=snapshot.derived.get(KEPT_MESSAGES))
    if not is_draft:
        is_at_last = summary.covers_through == ends.last.position
        write_placeholder(snapshot.branch, summary, gap=ends.gap if is_at_last else None)
    return summary


def _author_of_instructions(run: CompactionRun) -> Any:
    """Return the id of the user whose instructions a run follows; None where there are none."""
    if not run.instructions:
        return None
    return run.carries_from if run.carries_on else run.requested_by_id


def _kept_with(outcome: Outcome) -> dict[str, Any]:
    """Return the columns of what is kept beside the text."""
    return {
        "files_read": list(outcome.files_read),
        "files_modified": list(outcome.files_modified),
        "files_created": list(outcome.files_created),
        "files_deleted": list(outcome.files_deleted),
        "from_hook": outcome.from_hook,
        "details": dict(outcome.details),
        "abridged": outcome.abridged,
        "abridged_entries": list(outcome.abridged_entries),
    }


def _failures_left(snapshot: BranchSnapshot, outcome: Outcome) -> dict[str, int]:
    """Return how many failures still count: after a fallback digest one more leads to the next
    fallback digest.

    So the summariser is tried again once, with a small batch, and its success clears them.
    """
    if not outcome.is_digest or not snapshot.profile.digest_after_failures:
        return {}
    most = snapshot.profile.digest_after_failures - 1
    return {"failures": min(most, snapshot.state.failures)}


def _covered(ends: Ends, old: SessionSummary | None) -> dict[str, Any]:
    """Return the columns that say what is covered: a new version covers what the old one did."""
    first, last = ends.first, ends.last
    return {
        "first_message": first,
        "last_message": last,
        "first_message_created_at": first.created_at,
        "last_message_created_at": last.created_at,
        "covers_from": old.covers_from if old else first.position,
        "covers_through": old.covers_through if old else last.position,
    }


def moved_cursor(passed: QuerySet[Message], last: Message, *, messages: int) -> dict[str, Any]:
    """Return the state's columns when the cursor moves over `messages` and the rules between.

    They are added to what is counted by then: a message may have been put before the cursor while
    the summary was being written.
    """
    rules = passed.filter(pinned=True, role=Message.Role.SYSTEM).order_by().values("pk")
    return {
        "cursor": last.position,
        "covered_messages": F("covered_messages") + messages + _CountOf(rules),
        "covered_tokens": last.tokens_through,
        "covered_chars": last.chars_through,
        "last_consolidated_at": database_now(),
        "failures": 0,
        "gainless_total": 0,
        "backoff_until": None,
        # What was held lies before the cursor now (branches/holds.note_end_of_hold).
        **RELEASED,
        # Should this worker die before it looks for what is left, the sweep does.
        "next_check_at": after_lease(),
    }


class _CountOf(Subquery):
    """How many rows a query finds, counted inside the statement that asks."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


def previous_of(snapshot: BranchSnapshot, outcome: Outcome) -> SessionSummary | None:
    """Return the row that a new one continues: what it names is not sent beside it (a fallback
    digest).
    """
    found = snapshot.newest if outcome.is_digest else snapshot.continued
    return found[-1] if found else None

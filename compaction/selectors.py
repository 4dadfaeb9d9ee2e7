"""Reads: runs that are ready or running, the summaries that count, and how far they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from chatapp.compiled import compiled_read
from chatapp.extensions import MarkKind, TreeMark, TreePart
from chatapp.lineage import PathTable
from chatapp.llm.answer_ends import AnswerEnd, end_of
from chatapp.models import Branch, Message
from chatapp.round_trips import Statement
from chatapp.selectors import (
    has_ancestors,
    on_path_q,
    placeholders,
    rows_before,
    sparse_q,
)
from compaction.engine.recovery import RecoveryAction
from compaction.models import (
    CompactionRun,
    RecoveryStep,
    SessionSummary,
)
from compaction.models.summaries import HOLDS_EARLIER_VERSION, NEWEST_VERSION

# Since when a ready run waits for a worker: what waited for a model, since that wait was over.
QUEUED_SINCE = Coalesce("waits_until", "created_at")


def ready_q(now: datetime) -> Q:
    """Return the condition for runs that wait for nothing but a worker."""
    return Q(waits_until__isnull=True) | Q(waits_until__lte=now)


def running_row(run: CompactionRun) -> QuerySet[CompactionRun]:
    """Return the query of the run while it runs in the hands of the worker that it names.

    An UPDATE of it is a compare-and-set: no row where it ended or changed hands.
    """
    return CompactionRun.objects.filter(
        pk=run.pk, status=CompactionRun.Status.RUNNING, worker=run.worker
    )


def waiting_for(branch: UUID | OuterRef) -> QuerySet[CompactionRun]:
    """Return the runs that somebody asked for and that wait for a branch in the queue."""
    waiting = CompactionRun.objects.filter(
        branch=branch, status=CompactionRun.Status.QUEUED, mode="background"
    )
    return waiting.exclude(trigger=CompactionRun.Trigger.PROACTIVE)


# How many summaries of forks and parents over one stretch are looked past, at most.
MAX_OVERLAPS = 20
# The index summary_active is used where a statement has its condition literally.
ACTIVE_SUMMARIES = PathTable(
    table="session_summaries", position="covers_through", where="r.status = 'active'"
)
# What a request needs of a summary; the other thirty columns are read where somebody asks.
SENT_COLUMNS = (
    "summary_text",
    "summary_tokens",
    "covers_from",
    "covers_through",
    "created_at",
    "is_digest",
    "truncated",
    "format_version",
    "files_read",
    "files_modified",
    "files_created",
    "files_deleted",
    "from_hook",
    "model",
    "next_uncached_tokens",
    "abridged",
    # What a person asked for goes on with the text that the person wrote.
    "trigger",
    "reason",
    "instructions",
)
# In the metadata of a branch's summary: the id of the note that tells it.
NOTE = "note"
_NOTE_COLUMNS = ("pk", "branch_id", "position")


def summaries_of(branch: Branch) -> QuerySet[SessionSummary]:
    """Return the active compaction summaries that hold on the branch's path, newest first.

    A summary made on an ancestor counts as long as it covers nothing behind the fork.
    """
    return _compactions(sparse_q(branch, ACTIVE_SUMMARIES))


def own_summaries(branch: UUID) -> QuerySet[SessionSummary]:
    """Return the same of a branch that begins in no other one, by its key."""
    return _compactions(Q(branch_id=branch))


def _compactions(where: Q) -> QuerySet[SessionSummary]:
    rows = SessionSummary.objects.filter(
        where,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.COMPACTION,
        format_version__lte=NEWEST_VERSION,
    )
    return rows.order_by("-covers_through", "-created_at")


def passed_over_behind(branch: Branch, cursor: int) -> bool:
    """Whether summaries of a later program cover what stands behind a cursor of the branch."""
    rows = active_summaries_of(branch).filter(
        kind=SessionSummary.Kind.COMPACTION, format_version__gt=NEWEST_VERSION
    )
    return rows.filter(covers_through__gt=cursor).exists()


def active_summaries_of(branch: Branch) -> QuerySet[SessionSummary]:
    """Return the active summaries of every kind that hold on the branch's path."""
    return SessionSummary.objects.filter(
        sparse_q(branch, ACTIVE_SUMMARIES), status=SessionSummary.Status.ACTIVE
    )


def branch_summaries_of(branch: Branch) -> QuerySet[SessionSummary]:
    """Return the active summaries of branches that were left, whose notes stand on the path.

    What they cover stands on the branches that were left: their places are those of their notes.
    """
    rows = SessionSummary.objects.filter(
        session=branch.session_id,
        status=SessionSummary.Status.ACTIVE,
        kind=SessionSummary.Kind.BRANCH,
    )
    named = rows.values_list("pk", f"metadata__{NOTE}")
    by_note = {id_named(note): pk for pk, note in named}
    notes = [key for key in by_note if key is not None]
    there = Message.objects.filter(on_path_q(branch, "branch", "position"), pk__in=notes)
    found = [by_note[note] for note in there.values_list("pk", flat=True)]
    return rows.filter(pk__in=found).order_by("created_at")


def newest_summaries(
    branch: Branch, limit: int, *, through: int, columns: Sequence[str] = SENT_COLUMNS
) -> list[SessionSummary]:
    """Return the newest `limit` summaries up to a cursor, oldest of them first.

    What an ancestor was summarised to after the fork stands behind the branch's own cursor: those
    messages are sent verbatim here, so their summary is not.
    """
    rows = summaries_of(branch).filter(covers_through__lte=through)
    # Summaries of one branch never overlap: only a fork reads more than it sends.
    spare = MAX_OVERLAPS if branch.parent_id else 0
    return list(reversed(without_overlaps(rows.only(*columns)[: limit + spare])[:limit]))


def asked_written(branch: Branch, limit: int, *, through: int) -> Statement[list[Any]] | None:
    """Return the read that sent_summaries begins with; None where another branch's count, too."""
    if has_ancestors(branch):
        return None
    spare = MAX_OVERLAPS if branch.parent_id else 0
    return _written_on.asked(branch=branch.pk, through=through, most=limit + spare)


def sent_summaries(
    branch: Branch,
    limit: int,
    *,
    through: int,
    besides: SessionSummary | None = None,
    written: list[Any] | None = None,
) -> list[SessionSummary]:
    """Return what is sent of the summaries up to a cursor, oldest first.

    Those are the newest `limit` that a summariser wrote, down to one that holds what was before it,
    and the newest fallback digest that no summary has taken in since. `besides` is left out, as if
    it did not count; `written` is what asked_written found of the same.
    """
    # Only a fork reads more than it sends (newest_summaries). Hardly a branch has a fallback
    # digest.
    if not through:
        # A summary covers a message at least.
        return []
    asked = asked_written(branch, limit, through=through) if besides is None else None
    if written is not None:
        marked = written
    elif asked is not None:
        marked = asked.run()
    else:
        spare = MAX_OVERLAPS if branch.parent_id else 0
        marked = list(_written(_through(branch, through, besides))[: limit + spare])
    found: list[SessionSummary] = list(marked)
    if not marked or marked[0].untaken is not None:
        found += _untaken(_through(branch, through, besides)).only(*SENT_COLUMNS)[:1]
        found.sort(key=lambda row: (row.covers_through, row.created_at), reverse=True)
    chain = without_overlaps(found)
    kept = []
    for row in chain:
        if row.is_digest:
            continue
        kept.append(row.pk)
        if len(kept) == limit or row.format_version >= HOLDS_EARLIER_VERSION:
            break
    return [row for row in reversed(chain) if row.is_digest or row.pk in kept]


def _through(
    branch: Branch, position: int, besides: SessionSummary | None
) -> QuerySet[SessionSummary]:
    rows = summaries_of(branch).filter(covers_through__lte=position)
    return rows if besides is None else rows.exclude(pk=besides.pk)


def _untaken(rows: QuerySet[SessionSummary]) -> QuerySet[SessionSummary]:
    """Return those fallback digests among summaries that none of them has taken in."""
    taken = Exists(rows.order_by().filter(previous=OuterRef("pk")))
    return rows.filter(is_digest=True).exclude(taken)


def _written(rows: QuerySet[SessionSummary]) -> QuerySet[Any]:
    """Return those that a summariser wrote; `untaken` is the id of a digest that is left."""
    untaken = _untaken(rows).values("pk")[:1]
    return rows.filter(is_digest=False).only(*SENT_COLUMNS).annotate(untaken=untaken)


@compiled_read
def _written_on(*, branch: UUID, through: int) -> QuerySet[Any]:
    """Return the same of a branch without ancestors."""
    return _written(_compactions(Q(branch_id=branch)).filter(covers_through__lte=through))


# So many summaries of hooks, one behind the other, are looked through for one of ours.
MOST_OF_HOOKS = 20


def from_last_that_continues(rows: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return the newest rows from the last one on that surely took in those before it.

    What a hook wrote may have left out what it was given to continue.
    """
    written = [row for row in rows if not row.is_digest]
    ours = [index for index, row in enumerate(written) if not row.from_hook]
    start = ours[-1] if ours else 0
    return [*written[start:], *(row for row in rows if row.is_digest)]


def newest_that_holds_all(sent: Callable[[int], list[SessionSummary]]) -> list[SessionSummary]:
    """Return the newest summary of those that `sent` finds, and what it may not have taken in."""
    found = sent(1)
    if any(row.from_hook for row in found):
        found = from_last_that_continues(sent(MOST_OF_HOOKS))
    return found


def continued_by(summary: SessionSummary) -> list[SessionSummary]:
    """Return what another summary continues: the one before it, in its newest active version.

    The last one is a fallback digest that it takes in, if there is one.
    """
    found = newest_that_holds_all(
        partial(sent_summaries, summary.branch, through=summary.covers_from - 1, besides=summary)
    )
    found.sort(key=lambda row: row.is_digest)
    return found or [row for row in (summary.previous,) if row is not None]


def chain_of(branch: Branch, *, through: int | None = None) -> list[SessionSummary]:
    """Return all summaries that the branch's history rests on, newest first.

    With `through` only those that end there or before: a fork may not have taken over all.
    """
    rows = summaries_of(branch).select_related("session", "branch")
    return without_overlaps(rows if through is None else rows.filter(covers_through__lte=through))


def without_overlaps(rows: Iterable[SessionSummary]) -> list[SessionSummary]:
    """Return those of the rows, newest first, that cover different stretches.

    A fork and its parent may each have summarised what they share; the newest that counts here
    has read those messages, so the other one says nothing new.
    """
    chain: list[SessionSummary] = []
    for row in rows:
        if not chain or row.covers_through < chain[-1].covers_from:
            chain.append(row)
    return chain


def bare_placeholders(branch: Branch, limit: int) -> list[Message]:
    """Return the newest placeholders that have no summary row: old data, or an import's.

    Oldest of them first.
    """
    asked = asked_bare(branch, limit)
    rows = list(bare(placeholders(branch))[:limit]) if asked is None else asked.run()
    return rows[::-1]


def asked_bare(branch: Branch, limit: int) -> Statement[list[Message]] | None:
    """Return the read of the same, newest first; None where another branch's count, too."""
    own = not has_ancestors(branch)
    return _own_bare.asked(branch=branch.pk, most=limit) if own else None


def bare(rows: QuerySet[Message]) -> QuerySet[Message]:
    """Return those of some placeholders that have no summary row, newest first."""
    rows = rows.filter(metadata__summary_id__isnull=True).exclude(summary="")
    return rows.order_by("-position")


@compiled_read
def _own_bare(*, branch: UUID) -> QuerySet[Message]:
    return bare(Message.objects.filter(branch=branch, kind=Message.Kind.PLACEHOLDER))


def anchor_before(branch: Branch, position: int, *, last: Message | None = None) -> Message | None:
    """Return the question whose turn a covered stretch breaks off, or None.

    Where the last message up to `position` is no final answer, what follows goes on with the turn
    of the newest user message before it. `last` is that message where the caller has it. Notes end
    no turn, and ask nothing.
    """
    messages = Message.objects.filter(kind=Message.Kind.MESSAGE)
    end = position + 1
    if last is None or last.is_note:
        ends = messages.only("role", "kind", "tool_calls")
        last = next(iter(rows_before(branch, ends, end=end, most=1)), None)
    if last is None or is_final_answer(last):
        return None
    questions = messages.filter(role=Message.Role.USER)
    questions = questions.defer("usage", "summary", "response_id")
    return next(iter(rows_before(branch, questions, end=end, most=1)), None)


def is_final_answer(message: Message) -> bool:
    """Whether the message ends a turn: the assistant speaks and asks for no tool."""
    return message.role == Message.Role.ASSISTANT and not message.tool_calls


def tree_marks(session_id: UUID, part: TreePart | None = None) -> list[TreeMark]:
    """Return where a session's active summaries stand in its tree: behind what they cover.

    With a part of the tree those that stand there alone. What the summary of a branch covers stands
    on the branch that was left: its place is that of the note that tells it.
    """
    rows = SessionSummary.objects.filter(
        session=session_id, status=SessionSummary.Status.ACTIVE
    ).annotate(note=KT("metadata__note"))
    if part is not None:
        # Where the note stands that tells of a branch is known when it was read.
        told_by_note = Q(kind=SessionSummary.Kind.BRANCH) & part.branches("branch")
        rows = rows.filter(part.where("branch", "covers_through") | told_by_note)
    found = list(rows.values_list("pk", "kind", "branch_id", "covers_through", "note"))
    told = {key for *_, note in found if (key := id_named(note)) is not None}
    notes = Message.objects.filter(pk__in=told, session=session_id)
    places = {pk: (branch, at) for pk, branch, at in notes.values_list(*_NOTE_COLUMNS)}
    marks = []
    for pk, kind, branch, through, note in found:
        is_of_branch = kind == SessionSummary.Kind.BRANCH
        key = id_named(note) if is_of_branch else None
        owner, position = places.get(key, (branch, through)) if key else (branch, through)
        marks.append(
            TreeMark(
                kind=MarkKind.BRANCH_SUMMARY if is_of_branch else MarkKind.SUMMARY,
                branch_id=owner,
                position=position,
                model=SessionSummary,
                pk=pk,
            )
        )
    return marks


def id_named(text: object) -> UUID | None:
    """Return an id that metadata names; files bring metadata in which anything may stand."""
    try:
        return UUID(str(text))
    except ValueError:
        return None


# Broken-off answers that stand between a question and its next try, at most.
MOST_BROKEN_OFF = 20


def compactions_since_question(branch: Branch) -> int:
    """Return how many compactions helped since the branch's newest question or finished answer.

    A turn without a message goes on with the question of the one before, so what that one tried
    counts: nobody gets another set of compactions by asking for the same answer again.

    With an answer the count begins anew, that of a tool call included: the request of the next step
    is another one. A branch that was replayed with shorter results goes on with the count of the
    one that it repeats.
    """
    last = _last_said(branch)
    if last is None:
        return 0
    steps = RecoveryStep.objects.filter(
        session_id=branch.session_id,
        branch_id__in=_replayed(branch),
        action=RecoveryAction.COMPACT.value,
        outcome=RecoveryStep.Outcome.SMALLER,
        created_at__gt=last.created_at,
    )
    return steps.count()


def has_automatic_run(branch: Branch) -> bool:
    """Whether a run that a rule asked for waits for the branch, or works on it."""
    under_way = (CompactionRun.Status.QUEUED, CompactionRun.Status.RUNNING)
    runs = CompactionRun.objects.filter(branch=branch, status__in=under_way)
    return runs.filter(trigger=CompactionRun.Trigger.PROACTIVE).exists()


def _last_said(branch: Branch) -> Message | None:
    """Return the newest message of a person or of a model that came to its end."""
    spoken = (Message.Role.USER, Message.Role.ASSISTANT)
    messages = Message.objects.filter(role__in=spoken, kind=Message.Kind.MESSAGE)
    columns = messages.only("role", "finish_reason", "created_at")
    for row in reversed(rows_before(branch, columns, most=MOST_BROKEN_OFF)):
        if end_of(row.finish_reason) is not AnswerEnd.BROKEN:
            return row
    return None


def _replayed(branch: Branch) -> list[UUID]:
    """Return the branch's id and those of the branches that it repeats."""
    found, current = [branch.pk], branch
    while current.kind == Branch.Kind.REPLAY and current.replaces is not None:
        current = current.replaces
        found.append(current.pk)
    return found

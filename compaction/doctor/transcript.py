"""What may be wrong with messages: their sums, their places, calls without results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    When,
    Window,
)
from django.db.models.functions import Coalesce

from chatapp.formatting import plural
from chatapp.llm.tokens import count_message
from chatapp.messages.pairing import answers
from chatapp.messages.wire import chars_of
from chatapp.models import Message, Session
from chatapp.part_store import why_not_there
from chatapp.selectors import GROUP_REACH, counter_of, path_messages
from chatapp.transcript import activate_main_line, recount_tokens
from chatapp.transcript.part_files import files_named
from compaction.doctor.findings import NOTHING, BranchPath, Finding, Severity
from compaction.doctor.repair import put_branch_sums_right, while_nobody_works

POSITIONS_BATCH = 1000
_COLUMNS = ("pk", "branch", "position", "role", "tool_calls", "tool_call_id")
_Row = dict[str, Any]


def check_pairs(line: BranchPath) -> Iterator[Finding]:
    """Yield how many calls and results of a branch's own messages have no partner.

    Calls of the last message are open, not unanswered: their results may still come.
    """
    branch = line.branch
    last = path_messages(branch).order_by("-position").values_list("position", flat=True).first()
    waiting: list[_Row] = []
    orphans: list[Any] = []
    for rows in _batches(line):
        waiting, without_call = _pair([*waiting, *rows])
        orphans += without_call
    own = [row for row in waiting if row["branch"] == branch.pk and row["position"] != last]
    unanswered = sum(len(row["tool_calls"]) for row in own)
    if unanswered or orphans:
        yield Finding(
            code="calls_unpaired",
            text=f"{plural(unanswered, 'tool call')} without a result, "
            f"{plural(len(orphans), 'result')} without a call. Every request is mended before it "
            "is sent.",
            severity=Severity.NOTE,
            remedy=NOTHING,
            session=branch.session_id,
            branch=branch.pk,
            message=own[0]["pk"] if own else orphans[0],
        )


def _pair(rows: list[_Row]) -> tuple[list[_Row], list[Any]]:
    """Return the messages with those of their calls that nobody answered; ids of stray results.

    What is returned is put before the next rows: an answer goes to the nearest call still open, so
    nothing is lost by leaving out the answered ones.
    """
    found = answers(rows)
    answered = set(found.values())
    waiting: list[_Row] = []
    orphans: list[Any] = []
    for index, row in enumerate(rows):
        if row["role"] == Message.Role.TOOL:
            orphans += [] if index in found else [row["pk"]]
            continue
        calls = list(enumerate(row["tool_calls"] or ()))
        left = [{"id": one.get("id")} for number, one in calls if (index, number) not in answered]
        if left:
            waiting.append(row | {"tool_calls": left})
    return waiting, orphans


def _batches(line: BranchPath) -> Iterator[list[_Row]]:
    """Return the rows that call or answer, some at a time.

    For a fork first those that stand before it, as far back as a group reaches: an open call of the
    parent may be answered here. A result among them is the parent's, and left out with its call.
    """
    acting = Q(role=Message.Role.TOOL) | Q(tool_calls__isnull=False)
    rows = path_messages(line.branch).filter(acting).order_by("position").values(*_COLUMNS)
    if line.fork:
        shared = rows.filter(position__lte=line.fork).order_by("-position")[:GROUP_REACH]
        yield from _without_strays(list(reversed(shared)))
    batch = list(rows.filter(position__gt=line.fork)[:POSITIONS_BATCH])
    while batch:
        yield batch
        batch = list(rows.filter(position__gt=batch[-1]["position"])[:POSITIONS_BATCH])


def _without_strays(rows: list[_Row]) -> Iterator[list[_Row]]:
    waiting, _ = _pair(rows)
    if waiting:
        yield waiting


def check_active_branch(session: Session, lines: Sequence[BranchPath]) -> Iterator[Finding]:
    """Yield a session that no turn can go on with: without an active branch of its own."""
    if session.active_branch_id in {line.branch.pk for line in lines}:
        return
    yield Finding(
        code="no_active_branch",
        text="The session has no active branch, or one of another session: no turn can go on.",
        remedy="Its root, or the newest replay of it, is activated; one without any branch gets an "
        "empty root.",
        session=session.pk,
        repair=partial(activate_main_line, session),
    )


def check_places(line: BranchPath) -> Iterator[Finding]:
    """Yield a fork that starts nowhere, and messages that stand where no reader expects them."""
    yield from _fork(line)
    branch, fork = line.branch, line.fork
    own = Message.objects.filter(branch=branch, kind__in=Message.SPOKEN)
    # Placeholders may stand before the fork: they mark a summary of what is shared.
    yield from _misplaced(
        line,
        own.filter(position__lte=fork),
        code="place_before_fork",
        where="at or before the place where it begins: their order is not certain",
    )
    yield from _misplaced(
        line,
        own.exclude(session=branch.session_id),
        code="message_of_other_session",
        where="with the id of another session: nobody can tell whose they are",
    )


def _fork(line: BranchPath) -> Iterator[Finding]:
    branch = line.branch
    if (branch.parent_id is None) != (branch.fork_position is None):
        why = "names a parent without a place, or a place without a parent"
    elif (shared := line.shared) is not None and not _stands_there(shared, line.fork):
        why = "starts where no message of its parent stands"
    else:
        return
    yield Finding(
        code="fork_misplaced",
        text=f"The branch {why}: what it shares with others is not certain.",
        session=branch.session_id,
        branch=branch.pk,
    )


def _stands_there(shared: Q, position: int) -> bool:
    there = Message.objects.filter(shared, position=position)
    return there.filter(kind__in=Message.SPOKEN).exists()


def _misplaced(
    line: BranchPath, rows: QuerySet[Message], *, code: str, where: str
) -> Iterator[Finding]:
    first = rows.order_by("position").values_list("pk", flat=True).first()
    if first is not None:
        yield Finding(
            code=code,
            text=f"{plural(rows.count(), 'message')} of the branch {where}.",
            session=line.branch.session_id,
            branch=line.branch.pk,
            message=first,
        )


def check_part_files(session_id: UUID, *, are_read: bool = False) -> Iterator[Finding]:
    """Yield how many files of a session's parts are not there as they were stored.

    Without `are_read` their sizes tell.
    """
    named = files_named(session_id)
    of_digest = {file.digest: file for _, file in named}
    wrong = {
        digest: why
        for digest, file in of_digest.items()
        if (why := why_not_there(session_id, file, is_read=are_read))
    }
    if wrong:
        yield Finding(
            code="part_files_missing",
            text=f"Of {plural(len(of_digest), 'file')} with images and other parts of messages, "
            f"{len(wrong):,} cannot be read: {next(iter(wrong.values()))}. A line of text is sent "
            "in their place.",
            remedy="No program can repair this: put the files back from a backup of the store.",
            session=session_id,
            message=next(pk for pk, file in named if file.digest in wrong),
        )


SUMS_BATCH = 500
_SPOKEN = Message.SPOKEN
_SUMS = {"count": Count("pk"), "tokens": Sum("tokens"), "chars": Sum("chars")}


def check_sums(line: BranchPath) -> Iterator[Finding]:
    """Yield what is wrong with a branch's sums; the stored tokens of its messages are believed."""
    wrong = _wrong_sums(line)
    if wrong:
        yield Finding(
            code="sums_off",
            text=f"{wrong} Triggers fire too early or too late.",
            remedy="Counts, sums and the head are worked out again from the rows.",
            session=line.branch.session_id,
            branch=line.branch.pk,
            repair=partial(put_branch_sums_right, line.branch),
        )


def _wrong_sums(line: BranchPath) -> str:
    """Return what is off in words; nothing where all sums are right."""
    branch, own = line.branch, Message.objects.filter(branch=line.branch)
    shared = _shared(line).aggregate(**_SUMS)
    sums = own.filter(kind__in=_SPOKEN).aggregate(**_SUMS)
    count, total, chars = ((shared[name] or 0) + (sums[name] or 0) for name in _SUMS)
    if (count, total) != (branch.message_count, branch.token_total):
        return (
            f"The branch says {plural(branch.message_count, 'message')} with "
            f"{plural(branch.token_total, 'token')}; there are {count:,} with {total:,}."
        )
    if chars != branch.char_total:
        return (
            f"The branch says {plural(branch.char_total, 'character')}; its messages have "
            f"{chars:,}."
        )
    for noun, summed in (("token", "tokens"), ("character", "chars")):
        base = shared[summed] or 0
        if _wrong_running(line, summed, base).exists() or _wrong_marks(line, summed).exists():
            return f"A running {noun} sum along the branch is off."
    head = own.aggregate(head=Max("position"))["head"] or 0
    if max(head, line.fork) > branch.head_position:
        return "The branch's head is before its last message; the next one's place is taken."
    return ""


def _shared(line: BranchPath) -> QuerySet[Message]:
    """Return the messages of the path that belong to other branches."""
    shared = line.shared
    if shared is None:
        return Message.objects.none()
    return Message.objects.filter(shared, kind__in=_SPOKEN)


def _wrong_running(line: BranchPath, summed: str, base: int) -> QuerySet[Message]:
    """Return the rows behind the fork whose sum is not that of everything up to them."""
    counts = When(kind__in=_SPOKEN, then=F(summed))
    counted = Case(counts, default=0, output_field=BigIntegerField())
    running = Window(Sum(counted), order_by=["position"])
    rows = Message.objects.filter(branch=line.branch, position__gt=line.fork)
    return rows.annotate(running=running).exclude(**{f"{summed}_through": F("running") + base})


def _wrong_marks(line: BranchPath, summed: str) -> QuerySet[Message]:
    """Return the placeholders before the fork whose sum is not that of the message before them."""
    marks = Message.objects.filter(branch=line.branch, position__lte=line.fork)
    before = _shared(line).filter(position__lte=OuterRef("position")).order_by("-position")
    through = Subquery(before.values(f"{summed}_through")[:1], output_field=BigIntegerField())
    marks = marks.exclude(kind__in=_SPOKEN).annotate(through=Coalesce(through, 0))
    return marks.exclude(**{f"{summed}_through": F("through")})


def check_tokens(line: BranchPath) -> Iterator[Finding]:
    """Yield how many of a branch's own messages have other sizes than are counted now.

    This reads every text. A difference is no damage where the session's model was changed, or the
    encoding's file came later; it is told because budgets are kept in the tokens of now.
    """
    off, stored, found, first = 0, 0, 0, None
    for row, tokens in _counted_again(line):
        if tokens != row.tokens or chars_of(row) != row.chars:
            first = first or row.pk
            off, stored, found = off + 1, stored + row.tokens, found + tokens
    if off:
        yield Finding(
            code="tokens_off",
            text=f"{plural(off, 'message')} of the branch with {stored:,} tokens stored and "
            f"{found:,} counted now, or with other characters: counted in another way before, or "
            "changed since.",
            remedy="They are counted again, and all sums with them.",
            session=line.branch.session_id,
            branch=line.branch.pk,
            message=first,
            repair=partial(while_nobody_works, line.branch, partial(recount_tokens, line.branch)),
        )


def _counted_again(line: BranchPath) -> Iterator[tuple[Message, int]]:
    counter = counter_of(line.branch.session)
    rows = Message.objects.filter(branch=line.branch, kind__in=_SPOKEN).order_by("position")
    rows = rows.defer("usage", "summary", "response_id")
    batch = list(rows[:SUMS_BATCH])
    while batch:
        for row in batch:
            yield row, count_message(row.stored_wire(), counter)
        batch = list(rows.filter(position__gt=batch[-1].position)[:SUMS_BATCH])

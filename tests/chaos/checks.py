"""What must hold after the chaos, over what was read from the database.

Everything here works on plain values, so that made-up faults can be shown to be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.chaos.ledger import Sent


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """A row of a branch, as far as the checks look at it."""

    id: str
    position: int
    mark: str
    is_pinned: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredSummary:
    """An active summary with what it is linked to; `is_exact` where it repeats every mark."""

    id: str
    covers_from: int
    covers_through: int
    linked: frozenset[str]
    text: str = ""
    is_exact: bool = True


@dataclass(frozen=True, kw_only=True)
class StoredBranch:
    """All that is stored of one session's branch."""

    session_id: str
    messages: Sequence[StoredMessage] = ()
    summaries: Sequence[StoredSummary] = ()
    cursor: int = 0
    lease_owner: str = ""
    lease_expires_at: datetime | None = None
    unfinished: Sequence[str] = field(default=())


def violations(branch: StoredBranch, sent: Sequence[Sent]) -> list[str]:
    """Return a sentence for everything that does not hold for a session."""
    found = [
        *against_ledger(sent, branch.messages),
        *uncovered(branch),
        *overlapping(branch.summaries),
        *unread(branch),
        *still_held(branch),
        *(f"run {run} has not finished" for run in branch.unfinished),
    ]
    return [f"Session {branch.session_id}: {sentence}." for sentence in found]


def against_ledger(sent: Sequence[Sent], messages: Sequence[StoredMessage]) -> Iterator[str]:
    """Yield what is lost, doubled, in another order, or was never sent.

    What was acknowledged is there exactly once; what was not, at most once.
    """
    stored = [message.mark for message in messages]
    times = Counter(stored)
    for one in sent:
        for mark in one.marks:
            if times[mark] > 1:
                yield f"{mark} is stored {times[mark]} times ({one.key})"
            elif times[mark] == 0 and one.is_acknowledged:
                yield f"{mark} was acknowledged and is not stored ({one.key})"
    expected = [mark for one in sent for mark in one.marks if times[mark]]
    known = set(expected)
    for message in messages:
        if message.mark not in known:
            yield f"the message at {message.position} ({message.mark!r}) was never sent"
    found = list(dict.fromkeys(mark for mark in stored if mark in known))
    for right, wrong in zip(expected, found, strict=True):
        if right != wrong:
            yield f"{wrong} stands where {right} should stand"
            return


def uncovered(branch: StoredBranch) -> Iterator[str]:
    """Yield the messages up to the cursor that no active summary is linked to and nobody pinned."""
    linked = {message for summary in branch.summaries for message in summary.linked}
    missing = [
        message
        for message in branch.messages
        if message.position <= branch.cursor and not message.is_pinned and message.id not in linked
    ]
    if missing:
        yield (
            f"{len(missing)} message(s) up to the cursor at {branch.cursor} are in no active "
            f"summary, the first is {missing[0].mark} at {missing[0].position}"
        )


def overlapping(summaries: Sequence[StoredSummary]) -> Iterator[str]:
    """Yield the pairs of active summaries that cover the same stretch or were made of one message.

    Each is compared with the one before it that reaches furthest.
    """
    furthest: StoredSummary | None = None
    readers: dict[str, str] = {}
    for summary in sorted(summaries, key=lambda one: (one.covers_from, one.covers_through)):
        if furthest is not None and summary.covers_from <= furthest.covers_through:
            yield (
                f"the active summaries {furthest.id} and {summary.id} overlap "
                f"({furthest.covers_from} to {furthest.covers_through}, "
                f"{summary.covers_from} to {summary.covers_through})"
            )
        if furthest is None or summary.covers_through > furthest.covers_through:
            furthest = summary
        for message in summary.linked:
            if message in readers:
                yield f"message {message} is in two summaries, {readers[message]} and {summary.id}"
            readers[message] = summary.id


def unread(branch: StoredBranch) -> Iterator[str]:
    """Yield the summaries that lack what their summariser repeated of every message it saw."""
    marks = {message.id: message.mark.rpartition(" ")[2] for message in branch.messages}
    for summary in branch.summaries:
        gone = summary.linked - marks.keys()
        if gone:
            yield f"summary {summary.id} is linked to {len(gone)} message(s) of another branch"
        lacking = [
            marks[one]
            for one in summary.linked & marks.keys()
            if summary.is_exact and marks[one] not in summary.text
        ]
        if lacking:
            yield (
                f"summary {summary.id} is linked to {len(lacking)} message(s) that it has not "
                f"read, for example {min(lacking)}"
            )


def still_held(branch: StoredBranch) -> Iterator[str]:
    """Yield the lease that somebody holds although nobody works any more."""
    if branch.lease_owner:
        yield f"{branch.lease_owner} still holds the lease, until {branch.lease_expires_at}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was sent to the model once: the question's mark, and all that stand in the request."""

    question: str
    said: frozenset[str]

    @property
    def session(self) -> int:
        """The number of the session's book."""
        return int(self.question.split("-")[1])

    @property
    def left_out(self) -> list[str]:
        """The marks of what was stored before the question and stands nowhere in the request."""
        name, _, count = self.question.rpartition("-")
        before = (f"{name}-{number:05d}" for number in range(1, int(count)))
        return [mark for mark in before if mark not in self.said]

    @property
    def of_others(self) -> list[str]:
        """The marks of other sessions."""
        name = self.question.rpartition("-")[0]
        return sorted(mark for mark in self.said if not mark.startswith(f"{name}-"))


def not_whole(requests: Sequence[Request], allowed: Mapping[int, float]) -> Iterator[str]:
    """Yield the requests that lack what neither they nor their summaries say, or say too much.

    `allowed` says how many requests of a session may: as many as an operator was told of, or any
    number where a summary was shortened.
    """
    lacking_so_far: Counter[int] = Counter()
    for request in requests:
        if request.of_others:
            yield f"The request of {request.question} holds {request.of_others[0]}."
        lacking = request.left_out
        lacking_so_far[request.session] += bool(lacking)
        if lacking and lacking_so_far[request.session] > allowed.get(request.session, 0):
            yield (
                f"The request of {request.question} lacks {len(lacking)} message(s), the first is "
                f"{lacking[0]}, the last {lacking[-1]}, and nobody was told."
            )


@dataclass(frozen=True, kw_only=True)
class Done:
    """What happened: a test in which nothing did must not pass."""

    acknowledged: int
    turns: int
    succeeded: int
    summaries: int
    kills: int
    interrupted: int
    restarted: int
    twice: int
    database_cuts: int
    redis_cuts: int
    bursts: int


def too_little(done: Done, *, sessions: int) -> list[str]:
    """Return a sentence for everything that happened too seldom to have been tested."""
    least = {
        "acknowledged": ("requests were acknowledged", 4 * sessions),
        "turns": ("turns were answered", sessions // 2),
        "succeeded": ("runs succeeded", sessions // 2),
        "summaries": ("summaries are active", sessions // 2),
        "kills": ("processes were killed", 3),
        "interrupted": ("runs were interrupted", 1),
        "restarted": ("runs were started again", 1),
        "twice": ("runs were delivered once more", 1),
        "database_cuts": ("connections to the database were cut", 1),
        "redis_cuts": ("times all connections to Redis were cut", 1),
        "bursts": ("times the summariser failed for a while", 1),
    }
    return [
        f"Too little happened: {getattr(done, name)} {what}, at least {wanted} must."
        for name, (what, wanted) in least.items()
        if getattr(done, name) < wanted
    ]

"""What stands before every request: append, prepare, decide and cut, at any age of the session."""

from __future__ import annotations

from collections.abc import Iterator

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.branches.leases import ensure_state
from compaction.branches.planning import cut_of, decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionState
from compaction.profiles import find_profile
from tests.bench.conversations import fresh, stored, summarise_all_but
from tests.bench.instant import ANSWER
from tests.bench.measure import Row, cpu, repeat
from tests.bench.sizes import Sizes
from tests.deep_forks import counted_reads

# Messages behind the cursor: none is due yet, or one is.
NOT_DUE, DUE = 20, 40
# Rows that a cut may read besides the messages that it keeps.
MOST_ROWS_BESIDES = 100


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    for count in sizes.histories:
        session = stored(count)
        if count <= sizes.largest_unsummarised:
            yield _row("decide and cut, nothing summarised", count, session, _decide_and_cut, sizes)
        yield _rows_of_a_cut(count, session)
        summarise_all_but(session, min(DUE, count // 2))
        yield _row("decide and cut, 40 behind the cursor", count, session, _decide_and_cut, sizes)
        yield _row("for comparison: two bare queries", count, session, _two_queries, sizes)
        summarise_all_but(session, min(NOT_DUE, count // 4))
        yield _row("prepare, nothing due", count, session, _prepare, sizes)
        yield _row("append one message", count, session, _append, sizes)


def _row(name: str, count: int, session: Session, work: object, sizes: Sizes) -> Row:
    current = fresh(session)
    spent = repeat(lambda: work(current), sizes.repeats)  # type: ignore[operator]
    return Row(name=name, n=count, value=cpu(spent), unit="CPU ms")


def _rows_of_a_cut(count: int, session: Session) -> Row:
    """Return how many rows it takes to find the cut that keeps recent tokens."""
    profile = find_profile("checkpoint")
    with counted_reads() as reads:
        cut = cut_of(snapshot_of(fresh(session), profile=profile))
    _, rows = reads.counts
    aim = f"{len(cut.keep) + MOST_ROWS_BESIDES} at most"
    return Row(name="cut by tokens, nothing summarised", n=count, value=rows, unit="rows", aim=aim)


def _append(session: Session) -> None:
    transcript.append(session.branch, [NewMessage(wire={"role": "user", "content": ANSWER})])


def _prepare(session: Session) -> None:
    context_backend.prepare(session)


def _two_queries(session: Session) -> None:
    """Read the branch's state and 40 rows as plainly as Django can, and decide nothing."""
    CompactionState.objects.select_related("branch").get(pk=session.active_branch_id)
    newest = Message.objects.filter(branch=session.active_branch_id).order_by("-position")
    list(newest[:DUE])


def _decide_and_cut(session: Session) -> None:
    """Ask whether a compaction is due, and where it would cut whether or not."""
    snapshot = snapshot_of(session, state=ensure_state(session.branch))
    _ = decision_of(snapshot)
    cut_of(snapshot)

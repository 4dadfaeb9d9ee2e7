"""What stands before every request: append, prepare, decide and cut, at any age of the session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

from chatapp import transcript
from chatapp.context.backend import context_backend
from chatapp.models import Message, Session
from chatapp.transcript.writing import NewMessage
from compaction.branches.leases import ensure_state
from compaction.branches.planning import cut_of, decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionState
from compaction.profiles import find_profile
from compaction.runs.scheduling import assign_profile
from tests.bench.conversations import fresh, stored, summarise_all_but
from tests.bench.instant import ANSWER
from tests.bench.measure import Row, cpu, repeat
from tests.bench.sizes import Sizes
from tests.deep_forks import counted_reads

Act = Callable[[Session], None]
# Messages behind the cursor: none is due yet, or one is.
NOT_DUE, DUE = 20, 40
# Rows that a cut may read besides the messages that it keeps.
MOST_ROWS_BESIDES = 100


AIM, RATIO = "<= 3.5", "<= 1.3"
PRESETS = ("bisect", "sliding_window", "checkpoint")


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    found: dict[str, list[float]] = defaultdict(list)
    for count in sizes.histories:
        session = stored(count)
        for row in _rows(count, session, sizes):
            if row.aim == AIM:
                found[row.name].append(row.value)
            yield row
    for name, values in found.items():
        first, last = sizes.histories[0], sizes.histories[-1]
        ratio = values[-1] / values[0]
        yield Row(name=f"{name}: of {first:,}", n=last, value=ratio, unit="times", aim=RATIO)


def _rows(count: int, session: Session, sizes: Sizes) -> Iterator[Row]:
    for preset in PRESETS:
        assign_profile(fresh(session), preset)
        yield from _decisions(f"nothing summarised, {preset}", count, session, sizes)
    yield _rows_of_a_cut(count, session)
    summarise_all_but(session, min(DUE, count // 2))
    for preset in PRESETS:
        assign_profile(fresh(session), preset)
        yield from _decisions(f"{DUE} behind the cursor, {preset}", count, session, sizes)
    assign_profile(fresh(session), "")
    summarise_all_but(session, min(NOT_DUE, count // 4))
    yield _row("prepare, nothing due", count, session, _prepare, sizes)
    yield _row("append one message", count, session, _append, sizes)


def _decisions(state: str, count: int, session: Session, sizes: Sizes) -> Iterator[Row]:
    """Yield the row of a decision, and that of a bare query which reads as many rows."""
    yield _row(f"decide and cut, {state}", count, session, _decide_and_cut, sizes, AIM)
    with counted_reads() as reads:
        _decide_and_cut(fresh(session))
    read = partial(_read_plainly, rows=reads.rows)
    yield _row(f"as many rows, plainly, {state}", count, session, read, sizes)


def _row(name: str, count: int, session: Session, work: Act, sizes: Sizes, aim: str = "") -> Row:
    current = fresh(session)
    spent = repeat(lambda: work(current), sizes.repeats)
    return Row(name=name, n=count, value=cpu(spent), unit="CPU ms", aim=aim)


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


def _read_plainly(session: Session, *, rows: int) -> None:
    """Read so many rows as plainly as Django can, the branch's state among them; decide nothing."""
    CompactionState.objects.select_related("branch").get(pk=session.active_branch_id)
    newest = Message.objects.filter(branch=session.active_branch_id).order_by("-position")
    list(newest[: rows - 1])


def _decide_and_cut(session: Session) -> None:
    """Ask whether a compaction is due, and where it would cut whether or not."""
    snapshot = snapshot_of(session, state=ensure_state(session.branch))
    _ = decision_of(snapshot)
    cut_of(snapshot)

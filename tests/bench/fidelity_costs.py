"""What the measure of a summary and the sources of its lines cost, in time and in the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from django.db import connection

from compaction.engine.extractive.material import Material
from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.fidelity.alignment import trace
from compaction.engine.fidelity.measure import measure as measure_quality
from compaction.engine.types import Item, SummaryRequest
from compaction.models import SummaryLine, SummaryUnits
from compaction.profiles import save_profile
from compaction.runs.scheduling import assign_profile
from compaction.runs.worker import compact_branch
from tests.bench.conversations import fresh, stored
from tests.bench.fidelity import COUNTER
from tests.bench.measure import Row, cpu, repeat
from tests.bench.remembering import planted
from tests.bench.sizes import Sizes

TARGET = 2_000
POSITIONS = 1_000_000
COPIES = 100
PROSE_CHARACTERS = 60
"""Of each chosen line, so that none is a clause's own text and each has to be looked for."""


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    count = sizes.compactions[0]
    items = _conversation(count)
    request = SummaryRequest(kind="chunk", items=items, target_tokens=TARGET)
    summarizer = ExtractiveSummarizer(counter=COUNTER)
    text = summarizer.summarize(request).text
    whole = cpu(repeat(lambda: summarizer.summarize(request), sizes.repeats))
    tokens = sum(item.tokens for item in items)
    yield _row("extractive summary", count, whole, "CPU ms")
    yield _row("extractive summary: speed", count, tokens / whole, "tokens a CPU ms", "≥ 65")

    entities = Material(request).entities
    alone = cpu(repeat(lambda: measure_quality(text, items=items), sizes.repeats))
    known = cpu(
        repeat(lambda: measure_quality(text, items=items, entities=entities), sizes.repeats)
    )
    yield _row("quality of a summary", count, alone, "CPU ms")
    yield _row("quality, after what is named was found", count, known, "CPU ms", "≤ 15")

    candidates = Material(request).candidates
    prose = "\n".join(f"It says {line[:PROSE_CHARACTERS]}" for line in text.splitlines())
    sourced = cpu(repeat(lambda: trace(prose, candidates), sizes.repeats))
    yield _row("sources of a model's lines", count, sourced, "CPU ms", "≤ 5 % of a compaction")
    yield from _stored_bytes(sizes)


def _conversation(count: int) -> Sequence[Item]:
    """Return that many messages: planted conversations of different seeds, one after the other."""
    items: list[Item] = []
    seed = 0
    while len(items) < count:
        items += planted(seed, COUNTER.count).items
        seed += 1
    return tuple(
        replace(item, id=index, position=(index + 1) * POSITIONS)
        for index, item in enumerate(items[:count])
    )


def _stored_bytes(sizes: Sizes) -> Iterator[Row]:
    """Yield what a clause takes, and a line with its indexes, where the database tells."""
    if connection.vendor != "postgresql":
        return
    count = sizes.compactions[0]
    save_profile(name="bench-ledger", parameters={"ledger": True, "target_summary_tokens": TARGET})
    for seed in range(sizes.compaction_repeats):
        session = stored(count, seed=seed)
        assign_profile(session, "bench-ledger")
        compact_branch(session=fresh(session), trigger="manual", reason="manual", seconds=600)
    units = sum(map(len, SummaryUnits.objects.values_list("units", flat=True)))
    with connection.cursor() as cursor:
        # As it is stored, compressed: a row holds hundreds of clauses.
        cursor.execute(f"SELECT SUM(pg_column_size(units)) FROM {SummaryUnits._meta.db_table}")
        size = cursor.fetchone()[0]
    yield _row("a kept clause, stored", units, size / max(1, units), "bytes", "≤ 200")
    # As many as a real table has: a page or two of an empty one would count as theirs.
    rows = list(SummaryLine.objects.all())
    with connection.cursor() as cursor:
        # Of summaries and messages of their own, which need not be there: alike, entries of an
        # index would share their room.
        cursor.execute(f"ALTER TABLE {SummaryLine._meta.db_table} DISABLE TRIGGER ALL")
    for _ in range(COPIES):
        own: defaultdict[object, UUID] = defaultdict(uuid4)
        for row in rows:
            row.pk = None
            row.summary_id = own[row.summary_id]
            row.message_id = own[row.message_id] if row.message_id else None
        SummaryLine.objects.bulk_create(rows)
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM FULL {SummaryLine._meta.db_table}")
        cursor.execute("SELECT pg_total_relation_size(%s)", [SummaryLine._meta.db_table])
        size = cursor.fetchone()[0]
    lines = SummaryLine.objects.count()
    yield _row("a line with its sources, stored", lines, size / lines, "bytes", "≤ 200")


def _row(name: str, n: int, value: float, unit: str, aim: str = "") -> Row:
    return Row(name=name, n=n, value=value, unit=unit, aim=aim)

"""Rules by characters: what it costs to ask one at any age, and to count an old database's.

The last rows are those of the migration: how long it takes for that many messages, and how long
the longest of its transactions keeps a branch from its writers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest import mock

from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatapp.models import Branch, Message, Session
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.models import CompactionProfile, CompactionState
from compaction.profiles import save_profile
from tests.bench.conversations import fresh, grow, stored, summarise_all_but
from tests.bench.measure import Row, cpu, repeat
from tests.bench.sizes import Sizes

LEFT = 20
MADE = 1_000
SESSIONS = 8
EQUAL = "the same at any age"


def measure(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of this theme."""
    rules = save_profile(
        name="by-characters",
        parameters={
            "message_limit": 0, "max_context_tokens": 0, "cut": "tail_chars",
            "trigger_on_history_size_chars": 50_000, "history_tail_size_chars_to_exclude": 5_000,
        },
    )  # fmt: skip
    for count in sizes.histories:
        session = stored(count)
        summarise_all_but(session, min(LEFT, count // 4))
        yield from _asking(session, count, rules, sizes)
    yield from _migrating(sizes.migrated)


def _asking(session: Session, count: int, rules: CompactionProfile, sizes: Sizes) -> Iterator[Row]:
    """Ask the trigger whether it is due: it is not."""
    current, name = fresh(session), "trigger by characters, not due"

    def ask() -> None:
        assert decision_of(snapshot_of(current, profile=rules)) is None

    ask()
    with CaptureQueriesContext(connection) as found:
        ask()
    yield Row(name=name, n=count, value=len(found), unit="queries", aim=EQUAL)
    yield Row(name=name, n=count, value=cpu(repeat(ask, sizes.repeats)), unit="CPU ms")


def _migrating(messages: int) -> Iterator[Row]:
    """Forget all characters, and have the migrations count them."""
    for _ in range(SESSIONS):
        grow(stored(min(MADE, messages // SESSIONS)), messages // SESSIONS)
    Message.objects.update(chars=0, chars_through=0)
    Branch.objects.update(char_total=0)
    CompactionState.objects.update(covered_chars=0)
    count = Message.objects.count()
    filling: Any = import_module("chatapp.migrations.0016_fill_characters")
    covering: Any = import_module("compaction.migrations.0014_fill_covered_characters")
    editor, spent = SimpleNamespace(connection=connection), [0.0]
    one = filling._Filling._batch

    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        done = one(*args, **kwargs)
        spent.append(time.perf_counter() - begun)
        return done

    begun = time.perf_counter()
    with mock.patch.object(filling._Filling, "_batch", timed):
        filling.fill_characters(apps, editor)
    covering.fill_covered_characters(apps, editor)
    name = "counting the characters of an old database"
    yield Row(name=name, n=count, value=time.perf_counter() - begun, unit="s")
    yield Row(name="longest transaction of that", n=count, value=1000 * max(spent), unit="ms")

"""Fills the configured database with as much as a busy installation has, by bulk inserts.

    python -m tests.bench.fill --messages 400000 --summaries 20000 --sessions 2000

It writes what transcript and services would have written, with the same sums, so that every page
and every request works on it. It adds to what is there; the same seed makes the same rows.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from typing import Any

import django

BATCH = 20_000
LARGE_MESSAGES, LARGE_SUMMARIES = 100_000, 500
OWNERS = 40


def main(arguments: list[str]) -> None:
    """Migrate, fill, and print what was made and how to look at it."""
    options = _options(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    fill(messages=options.messages, summaries=options.summaries, sessions=options.sessions)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fill", description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--summaries", type=int, default=20_000)
    parser.add_argument("--sessions", type=int, default=2000)
    return parser.parse_args(arguments)


def fill(*, messages: int, summaries: int, sessions: int, seed: int = 3) -> Any:
    """Store the rows; a quarter of the messages stands in one session, which is returned."""
    from compaction.demo.preparing import ensure_operator

    operator = ensure_operator()
    maker = _maker(operator.user, random.Random(seed))
    started = time.monotonic()
    share = min(LARGE_MESSAGES, messages // 4)
    marks = min(LARGE_SUMMARIES, summaries // 4)
    large = maker.session(messages=share, summaries=marks, title="The very large session")
    large.owner = operator.user
    sizes = _sizes(messages - share, sessions - 1, maker.chance)
    left = summaries - marks
    for number, size in enumerate(sizes):
        # The summaries that are left go to the sessions that are left, by their share of messages.
        share = round(left * size / sum(sizes[number:])) if size >= 16 else 0
        left -= share
        maker.session(messages=size, summaries=share, forks=maker.chance.choice((0,) * 12 + (1, 2)))
        if sum(map(len, maker.rows.values())) >= BATCH or number == len(sizes) - 1:
            _write(maker.rows)
            _progress(maker.made, messages, started)
    _add_unfinished(large)
    _mend_sequence()
    print()
    for model, count in maker.made.items():
        print(f"{count:>9,} {model._meta.verbose_name_plural}")
    password = operator.password or "(the one it had)"
    print(f"Log in as operator, password {password}, API token {operator.token}.")
    print(f"The large session is {large.pk}.")
    return large


def _maker(operator: Any, chance: random.Random) -> Any:
    from django.contrib.auth import get_user_model
    from django.db.models import Max
    from django.utils import timezone

    from chatapp.llm.registry import get_model
    from compaction.models import CompactionStep
    from compaction.profiles import find_profile
    from tests.bench.rows import Maker
    from tests.bench.texts import Phrases

    users = get_user_model()._default_manager
    owners = [users.get_or_create(username=f"owner{number:02}")[0] for number in range(OWNERS)]
    counter = get_model("default").counter
    return Maker(
        owners=[operator, *owners],
        profile=find_profile(),
        phrases=Phrases.make(counter, chance),
        counter=counter,
        chance=chance,
        now=timezone.now(),
        next_step=(CompactionStep.objects.aggregate(last=Max("id"))["last"] or 0) + 1,
    )


def _sizes(messages: int, sessions: int, chance: random.Random) -> list[int]:
    """Return session sizes that add up to about `messages`: many small, some large."""
    shares = [chance.lognormvariate(0, 1.2) for _ in range(max(1, sessions))]
    return [max(2, math.floor(messages * share / sum(shares))) for share in shares]


def _write(rows: dict[type, list[Any]]) -> None:
    """Store what was collected, in one transaction, and forget it."""
    from django.db import transaction

    # Foreign keys are checked at the commit: a session may name its branch before that is there.
    with transaction.atomic():
        for model, made in rows.items():
            model._default_manager.bulk_create(made, batch_size=500)  # type: ignore[attr-defined]
            made.clear()


def _add_unfinished(session: Any) -> None:
    """Add what waits and what works now: the newest rows of the list of runs."""
    from chatapp.models import Session
    from compaction.models import CompactionRun
    from compaction.profiles import find_profile

    others = Session.objects.exclude(pk=session.pk).order_by("-created_at")[:5]
    for number, other in enumerate(others):
        CompactionRun.objects.create(
            session=other,
            branch=other.branch,
            status="queued" if number < 3 else "running",
            trigger="manual",
            reason="manual",
            mode="background",
            profile=find_profile(),
        )


def _mend_sequence() -> None:
    """Let PostgreSQL go on behind the step numbers that were given here."""
    from django.core.management.color import no_style
    from django.db import connection

    from compaction.models import CompactionStep

    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [CompactionStep]):
            cursor.execute(statement)
        cursor.execute("ANALYZE")


def _progress(made: dict[type, int], messages: int, started: float) -> None:
    from chatapp.models import Message

    seconds = time.monotonic() - started
    print(f"\r{made[Message]:>9,} of {messages:,} messages, {seconds:.0f} s", end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

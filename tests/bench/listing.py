"""The operators' lists over a hundred thousand sessions: queries, and the CPU that a page takes.

    python -m tests.bench.listing --sessions 100000

It fills the configured database with rows as lists read them (sessions, branches, states, one
message and now and then a run, a summary and an incident each), asks every list of the admin, the
list of sessions with each of its filters and orders, the front page, what needs a look and an
owner's page, and prints what a page took. Pages that
take more queries on a full page than on a short one, or more CPU than MOST_MS, end it with 1.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from datetime import timedelta
from typing import Any

import django

BATCH = 5_000
OWNERS = 200
MOST_MS = 300
QUESTIONS = "How do I renew", "Where is", "Why does the build of", "Please translate", "What is"


def main(arguments: list[str]) -> int:
    """Fill, measure, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.listing", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--explain", action="store_true", help="print the plans, too")
    options = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    django.setup()
    from django.core.management import call_command

    from chatapp.models import Session

    call_command("migrate", verbosity=0)
    have = Session.objects.count()
    if have < options.sessions:
        fill(options.sessions - have)
    return 1 if time_lists(explain=options.explain) else 0


def fill(sessions: int, seed: int = 16) -> None:
    """Store so many sessions with what lists read of them."""
    from django.contrib.auth import get_user_model

    users: Any = get_user_model()
    names = [f"listed{number:03d}" for number in range(OWNERS)]
    users.objects.bulk_create([users(username=name) for name in names], ignore_conflicts=True)
    owners = list(users.objects.filter(username__in=names))
    chance = random.Random(seed)
    started = time.monotonic()
    for start in range(0, sessions, BATCH):
        _write(min(BATCH, sessions - start), owners, chance)
        print(f"\r{start + BATCH:,} sessions, {time.monotonic() - started:.0f} s", end="")
    print()
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _write(count: int, owners: list[Any], chance: random.Random) -> None:
    from django.utils import timezone

    from chatapp.llm.registry import all_models
    from chatapp.models import POSITION_STEP, Branch, Incident, Message, Session
    from compaction.models import (
        CompactionProfile,
        CompactionRun,
        CompactionState,
        SessionSummary,
    )

    now, models = timezone.now(), list(all_models())
    profiles = list(CompactionProfile.objects.filter(is_current=True))
    rows: dict[type, list[Any]] = {
        model: []
        for model in (
            Session, Branch, Message, CompactionState, CompactionRun, SessionSummary, Incident,
        )
    }  # fmt: skip
    for _ in range(count):
        at = now - timedelta(minutes=chance.randrange(200_000))
        tokens, messages = int(chance.paretovariate(1.1) * 400), chance.randrange(2, 400)
        text = f"{chance.choice(QUESTIONS)} part {chance.randrange(10**6)} of the harbour?"
        session = Session(
            owner=chance.choice(owners),
            title=text,
            model=chance.choice(models) if chance.random() < 0.05 else models[0],
            created_at=at - timedelta(hours=3),
            updated_at=at,
            request_tokens=tokens,
            system_prompt="You answer briefly. " * 40,
        )
        branch = Branch(
            session=session,
            message_count=messages,
            token_total=tokens * 2,
            head_position=messages * POSITION_STEP,
            created_at=session.created_at,
        )
        session.active_branch = branch
        rows[Session].append(session)
        rows[Branch].append(branch)
        message = Message(
            session=session,
            branch=branch,
            position=POSITION_STEP,
            role="user",
            content=text,
            created_at=at,
        )
        rows[Message].append(message)
        summarised = chance.random() < 0.4
        rows[CompactionState].append(
            CompactionState(
                branch=branch,
                cursor=POSITION_STEP if summarised else 0,
                failures=1 if chance.random() < 0.001 else 0,
                profile=chance.choice(profiles).name if chance.random() < 0.05 else "",
            )
        )
        if summarised:
            run = CompactionRun(
                session=session,
                branch=branch,
                status="failed" if chance.random() < 0.02 else "succeeded",
                trigger="proactive",
                reason="window",
                mode="background",
                profile=profiles[0],
                created_at=at,
            )
            rows[CompactionRun].append(run)
            rows[SessionSummary].append(
                SessionSummary(
                    session=session,
                    branch=branch,
                    summary_text="The harbour lies in the south. " * 20,
                    message_count=1,
                    approx_tokens=tokens,
                    status="active",
                    trigger="proactive",
                    reason="window",
                    covers_from=POSITION_STEP,
                    covers_through=POSITION_STEP,
                    run=run,
                    profile=profiles[0],
                    created_at=at,
                    first_message=message,
                    last_message=message,
                    first_message_created_at=at,
                    last_message_created_at=at,
                )
            )
        if chance.random() < 0.05:
            rows[Incident].append(
                Incident(session=session, branch=branch, kind="retry", code="busy", text="Busy.")
            )
    from django.db import transaction

    with transaction.atomic():
        for model, made in rows.items():
            model._default_manager.bulk_create(made, batch_size=500)  # type: ignore[attr-defined]


def addresses() -> dict[str, str]:
    """Return every list of the admin, and the list of sessions in all its ways, by a name."""
    from django.contrib import admin
    from django.urls import reverse

    # Pages are registered with the addresses; commands do without.
    admin.autodiscover()
    found = {
        "front page": reverse("admin:index"),
        "needs a look": reverse("admin:compaction_needs_look"),
        "a new bulk job": reverse("admin:compaction_bulk_new"),
        "models": reverse("admin:chatapp_learnedlimits_models"),
        "an owner": reverse("admin:chatapp_session_owner", args=[_any_owner()]),
        "tables": reverse("admin:app_list", args=["compaction"]),
    }
    for model in admin.site._registry:
        if model._meta.app_label in ("chatapp", "compaction"):
            found[model._meta.label] = reverse(
                f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
            )
    sessions = found["chatapp.Session"]
    # Columns count from 1: the first is the box that selects a row.
    for name, asked in {
        "by size": "o=-5", "smallest first": "o=5", "longest idle": "o=7", "page 40": "p=40",
        "one model": "model=default", "over the window": "size=over", "half full": "size=half",
        "compacting": "state=compacting", "queued": "state=queued", "failing": "state=failing",
        "summarised": "state=summarised", "whole": "state=whole",
        "failing by size": "state=failing&o=-5", "a profile": "profile=bisect",
        "the default profile": "profile=-", "in the last day": "since=1", "search": "q=listed007",
    }.items():  # fmt: skip
        found[f"sessions, {name}"] = f"{sessions}?{asked}"
    return found


def _any_owner() -> Any:
    """Return the key of an owner of sessions."""
    from chatapp.models import Session

    return Session.objects.order_by("pk").values_list("owner", flat=True)[0]


def time_lists(*, explain: bool) -> list[str]:
    """Ask every list three times; return what was too slow, and print all."""
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    settings.ALLOWED_HOSTS = ["*"]
    operator, _ = get_user_model().objects.get_or_create(
        username="measuring", is_staff=True, is_superuser=True
    )
    client = Client()
    client.force_login(operator)
    slow = []
    for name, address in addresses().items():
        best, answered = float("inf"), 0
        for _ in range(3):
            before = time.process_time()
            answer = client.get(address, secure=True)
            best = min(best, 1000 * (time.process_time() - before))
            answered = answer.status_code
        with CaptureQueriesContext(
            connection,
        ) as queries:
            client.get(address, secure=True)
        spent = sum(float(query["time"]) for query in queries) * 1000
        bad = best > MOST_MS or answered != 200
        slow += [name] if bad else []
        print(
            f"{name:42} {answered} {best:6.0f} ms CPU {len(queries):3} queries "
            f"{spent:6.0f} ms in the database{'   TOO SLOW' if bad else ''}"
        )
        if explain or bad:
            _explain(queries)
    return slow


def _explain(queries: Any) -> None:
    """Print the plans of the slowest statements of a page."""
    from django.db import connection

    asked = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    word = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    for sql in asked:
        if '"sessions"' not in sql:
            continue
        with connection.cursor() as cursor:
            try:
                cursor.execute(f"{word} {sql}")
                lines = [str(row[-1]) for row in cursor.fetchall()]
            except Exception as error:
                lines = [str(error)[:100]]
        print("     ", sql[:110])
        print("        ", "\n         ".join(lines[:8]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Give the forks of old databases their lineage: depth and jump pointer."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import migrations, transaction

BATCH = 500


def fill_lineage(apps: Any, schema_editor: Any) -> None:
    """Work session by session, in transactions of BATCH branches.

    What is filled is left alone, so that a migration that was stopped goes on where it was. Until
    a branch has its pointer it is read step by step, so that nothing has to be shut down.
    """
    model = apps.get_model("chatapp", "Branch")
    alias = schema_editor.connection.alias
    branches = model.objects.using(alias)
    lacking = branches.filter(parent__isnull=False, jump__isnull=True)
    sessions = lacking.order_by("session_id").values_list("session_id", flat=True).distinct()
    last = None
    while True:
        rest = sessions if last is None else sessions.filter(session_id__gt=last)
        last = rest.first()
        if last is None:
            return
        _fill_session(model, alias, last)


def _fill_session(model: Any, alias: str, session_id: UUID) -> None:
    branches = model.objects.using(alias)
    rows = branches.filter(session_id=session_id).values_list("pk", "parent_id", "jump_id")
    parents: dict[UUID, UUID | None] = {}
    filled: set[UUID] = set()
    for key, parent, jump in rows.iterator(chunk_size=2000):
        parents[key] = parent
        if parent is None or jump is not None:
            filled.add(key)
    batch = []
    for key, depth, jump in _lineages(parents):
        if key in filled:
            continue
        batch.append(model(pk=key, depth=depth, jump_id=jump))
        if len(batch) == BATCH:
            _store(branches, batch)
            batch = []
    _store(branches, batch)


def _store(branches: Any, batch: list[Any]) -> None:
    with transaction.atomic(using=branches.db):
        branches.bulk_update(batch, ["depth", "jump"])


def _lineages(parents: dict[UUID, UUID | None]) -> Iterator[tuple[UUID, int, UUID]]:
    """Yield (branch, depth, jump) of every fork, ancestors first; the rule is Branch.save's."""
    depths: dict[UUID | None, int] = {}
    jumps: dict[UUID | None, UUID | None] = {}
    for start in parents:
        line, key = [], start
        while key not in depths:
            depths[key] = 0
            line.append(key)
            above = parents[key]
            if above is None or above not in parents:
                break
            key = above
        for key in reversed(line):
            parent = parents[key]
            if parent is None:
                jumps[key] = None
                continue
            jump = jumps.get(parent)
            farther = None if jump is None else jumps.get(jump)
            depth = depths.get(parent, 0)
            depths[key] = depth + 1
            equal = farther and depth - depths[jump] == depths[jump] - depths[farther]
            jumps[key] = farther if equal else parent
            yield key, depths[key], jumps[key] or parent


class Migration(migrations.Migration):
    # Each batch is a transaction of its own.
    atomic = False

    dependencies = [("chatapp", "0004_store_lineage")]

    operations = [migrations.RunPython(fill_lineage, migrations.RunPython.noop, elidable=True)]

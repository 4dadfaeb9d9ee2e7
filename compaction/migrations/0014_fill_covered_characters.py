"""Tell old states how many characters stand up to their cursors."""

from typing import Any
from uuid import UUID

from django.db import migrations

# States that are looked at together.
BATCH = 500


def fill_covered_characters(apps: Any, schema_editor: Any) -> None:
    """Write the sum of the last message up to each cursor, state by state.

    Where a cursor moves meanwhile, whoever moves it writes the sum as well.
    """
    alias = schema_editor.connection.alias
    branches = apps.get_model("chatapp", "Branch").objects.using(alias)
    messages = apps.get_model("chatapp", "Message").objects.using(alias)
    states = apps.get_model("compaction", "CompactionState").objects.using(alias)
    lacking = states.filter(cursor__gt=0, covered_chars=0).order_by("pk")
    lacking = lacking.values_list("pk", "cursor")
    batch = list(lacking[:BATCH])
    while batch:
        for key, cursor in batch:
            chars = _through(branches, messages, key, cursor)
            states.filter(pk=key, cursor=cursor).update(covered_chars=chars)
        batch = list(lacking.filter(pk__gt=batch[-1][0])[:BATCH])


def _through(branches: Any, messages: Any, branch_id: UUID, cursor: int) -> int:
    """Return the sum of the last message of a branch's path up to a cursor."""
    current: UUID | None = branch_id
    while current is not None:
        row = branches.filter(pk=current).values_list("parent_id", "fork_position").get()
        parent, fork = row[0], row[1] or 0
        if cursor > fork or parent is None:
            own = messages.filter(branch_id=current, position__gt=fork, position__lte=cursor)
            own = own.exclude(kind="placeholder").order_by("-position")
            found = own.values_list("chars_through", flat=True).first()
            if found is not None:
                return int(found)
        current, cursor = parent, min(cursor, fork)
    return 0


class Migration(migrations.Migration):
    # Each UPDATE is a transaction of its own: no state is locked for longer.
    atomic = False

    dependencies = [
        ("compaction", "0013_keep_abridged_histories"),
        ("chatapp", "0016_fill_characters"),
    ]

    operations = [
        migrations.RunPython(
            fill_covered_characters, migrations.RunPython.noop, elidable=True
        )
    ]

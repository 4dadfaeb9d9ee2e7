"""Count the characters of messages that were stored before they were counted, and sum them."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import migrations, transaction

# Messages in one transaction: who writes to their branch waits for that long.
BATCH = 2_000

_PLACE = ("pk", "parent_id", "fork_position")

# The characters of the names and arguments of a message's calls.
_IN_CALLS = {
    "sqlite": """
        SELECT SUM(
            LENGTH(COALESCE(JSON_EXTRACT(one.value, '$.function.name'), ''))
            + LENGTH(COALESCE(JSON_EXTRACT(one.value, '$.function.arguments'), ''))
        ) FROM JSON_EACH(tool_calls) AS one
    """,
    "postgresql": """
        SELECT SUM(
            LENGTH(COALESCE(one.value #>> '{function,name}', ''))
            + LENGTH(COALESCE(one.value #>> '{function,arguments}', ''))
        ) FROM JSONB_ARRAY_ELEMENTS(
            CASE JSONB_TYPEOF(tool_calls) WHEN 'array' THEN tool_calls ELSE '[]' END
        ) AS one
    """,
}
# Each row is counted and summed in one UPDATE, so that it is written once.
_COUNT = """
    UPDATE messages SET chars = counted.chars, chars_through = %s + counted.through
    FROM (
        SELECT id, chars, SUM(chars) OVER (ORDER BY position) AS through
        FROM (
            SELECT id, position, CASE WHEN kind = 'placeholder' THEN 0 ELSE
                LENGTH(COALESCE(content, ''))
                + CASE WHEN tool_calls IS NULL THEN 0 ELSE COALESCE(({in_calls}), 0) END
            END AS chars
            FROM messages WHERE branch_id = %s AND position > %s AND position <= %s
        ) AS texts
    ) AS counted
    WHERE messages.id = counted.id
"""


def fill_characters(apps: Any, schema_editor: Any) -> None:
    """Work branch by branch, parents first, in transactions of BATCH messages.

    Sums go on from the row before, which is read anew each time, and a branch's own sum is written
    while its row is locked: others may append and insert meanwhile. What is done twice comes out
    the same, so a migration that was stopped can begin again.
    """
    filling = _Filling(apps, schema_editor.connection)
    for session_id in filling.sessions():
        for branch in filling.branches_of(session_id):
            filling.fill(branch)


class _Filling:
    """Fills one branch after the other."""

    def __init__(self, apps: Any, connection: Any) -> None:
        self._connection = connection
        self._branches = apps.get_model("chatapp", "Branch").objects.using(connection.alias)
        self._messages = apps.get_model("chatapp", "Message").objects.using(connection.alias)
        self._count = _COUNT.format(in_calls=_IN_CALLS[connection.vendor])

    def sessions(self) -> Iterator[UUID]:
        """Yield the sessions that have messages, by and by."""
        found = self._branches.order_by("session_id").values_list("session_id", flat=True)
        last = None
        while True:
            rest = found if last is None else found.filter(session_id__gt=last)
            last = rest.first()
            if last is None:
                return
            yield last

    def branches_of(self, session_id: UUID) -> list[UUID]:
        """Return a session's branches, each behind its parent: that is less deep."""
        rows = self._branches.filter(session_id=session_id).order_by("depth", "created_at", "pk")
        return list(rows.values_list("pk", flat=True))

    def fill(self, branch_id: UUID) -> None:
        """Count and sum a branch's own messages, batch by batch, then its whole."""
        done: int | None = 0
        while done is not None:
            with transaction.atomic(using=self._connection.alias):
                # Nobody appends to the branch, or inserts before this batch, until it is done.
                branch = self._locked.filter(pk=branch_id).first()
                done = self._batch(branch, after=done) if branch is not None else None

    @property
    def _locked(self) -> Any:
        no_key = self._connection.features.has_select_for_no_key_update
        return self._branches.select_for_update(no_key=no_key).only(*_PLACE)

    def _batch(self, branch: Any, *, after: int) -> int | None:
        """Do the messages behind a place; return the last one's, or None where none is left."""
        fork = branch.fork_position or 0
        # Positions may have been given anew since the batch before: then it begins again.
        base = self._at(branch.pk, after) if after > fork else None
        if base is None:
            after, base = fork, self._shared(branch, fork)
        own = self._messages.filter(branch_id=branch.pk, position__gt=after).order_by("position")
        places = list(own.values_list("position", flat=True)[: BATCH + 1])
        last = places[:BATCH][-1] if places else after
        if places:
            key = self._branches.model._meta.pk.get_db_prep_value(branch.pk, self._connection)
            with self._connection.cursor() as cursor:
                cursor.execute(self._count, [base, key, after, last])
        if len(places) > BATCH:
            return last
        self._finish(branch, total=self._at(branch.pk, last) if places else base)
        return None

    def _finish(self, branch: Any, *, total: int | None) -> None:
        """Write the branch's sum, and those of marks that it put before its fork."""
        self._branches.filter(pk=branch.pk).update(char_total=total)
        before = {"branch_id": branch.pk, "position__lte": branch.fork_position or 0}
        for key, position in list(self._messages.filter(**before).values_list("pk", "position")):
            through = self._shared(branch, position)
            self._messages.filter(pk=key).update(chars=0, chars_through=through)

    def _at(self, branch_id: UUID, position: int) -> int | None:
        rows = self._messages.filter(branch_id=branch_id, position=position)
        found: int | None = rows.values_list("chars_through", flat=True).first()
        return found

    def _shared(self, branch: Any, position: int) -> int:
        """Return the sum up to a place before the fork: that of the last message there."""
        current = branch
        while current.parent_id is not None:
            position = min(position, current.fork_position or 0)
            current = self._branches.only(*_PLACE).get(pk=current.parent_id)
            own = self._messages.filter(branch_id=current.pk, position__lte=position)
            own = own.filter(position__gt=(current.fork_position or 0)).exclude(kind="placeholder")
            found = own.order_by("-position").values_list("chars_through", flat=True).first()
            if found is not None:
                return int(found)
        return 0


class Migration(migrations.Migration):
    # Each batch is a transaction of its own.
    atomic = False

    dependencies = [("chatapp", "0015_count_characters")]

    operations = [migrations.RunPython(fill_characters, migrations.RunPython.noop, elidable=True)]

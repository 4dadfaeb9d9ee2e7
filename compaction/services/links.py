"""Links of a summary to its sources, written by the database itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection
from django.db.models import QuerySet, UUIDField, Value

from chatapp.models import Message
from compaction.models import SessionSummary
from compaction.services.errors import LostRaceError


def link_sources(
    summary: SessionSummary, sources: QuerySet[Message], *, received: Iterable[Any]
) -> None:
    """Link a summary to the messages of a query: exactly those that the summariser received.

    One INSERT … SELECT, so that no row travels through Python. Then the links themselves are held
    against `received`, the ids of what was read as the database gave them (convert.read_items): a
    message that came in meanwhile, or that was pinned or unpinned into or out of the stretch, means
    LostRaceError, and nothing is stored (DESIGN.md, rule 2). Call it in the transaction that holds
    the session's positions.

    In the order of the ids, the indexes of the links and the look-ups of the messages go from page
    to page and do not jump: ten thousand take a third of the time.
    """
    pairs = sources.order_by("pk").values_list(Value(summary.pk, output_field=UUIDField()), "pk")
    select, parameters = pairs.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO session_summary_messages (summary_id, message_id) " + select, parameters
        )
        cursor.execute(
            "SELECT message_id FROM session_summary_messages WHERE summary_id = %s",
            [SessionSummary._meta.pk.get_db_prep_value(summary.pk, connection)],
        )
        linked = {message_id for (message_id,) in cursor}
    if linked != set(received):
        raise LostRaceError(
            "The messages that the summariser received are not those that stand there now: "
            "something came in, or was pinned or unpinned, while the summary was being written; "
            "nothing was stored."
        )

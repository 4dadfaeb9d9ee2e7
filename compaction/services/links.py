"""Links of a summary to its sources, written by the database itself."""

from __future__ import annotations

from django.db import connection
from django.db.models import QuerySet, UUIDField, Value

from chatapp.models import Message
from compaction.models import SessionSummary
from compaction.services.errors import LostRaceError


def link_sources(summary: SessionSummary, sources: QuerySet[Message], *, received: int) -> None:
    """Link a summary to the messages of a query: exactly those that the summariser received.

    One INSERT … SELECT, so that no row travels through Python. Messages are added to a stretch or
    pinned, never taken out of it: as long as their number is `received` they are the same. Where it
    is not, something came in while the summary was being written: LostRaceError, and nothing is
    stored (DESIGN.md, rule 2). Call it in the transaction that holds the session's positions.
    """
    pairs = sources.order_by().values_list(Value(summary.pk, output_field=UUIDField()), "pk")
    select, parameters = pairs.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO session_summary_messages (summary_id, message_id) " + select, parameters
        )
        linked = cursor.rowcount
    if linked != received:
        raise LostRaceError(
            f"The summariser received {received} messages and {linked} stand there now: something "
            "came in while the summary was being written; nothing was stored."
        )

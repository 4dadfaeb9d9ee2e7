"""Links of a summary to its sources, written by the database itself."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.models import QuerySet, UUIDField, Value

from chatapp.models import Message
from compaction.models import SessionSummary, SessionSummaryMessage
from compaction.services.errors import LostRaceError


def link_sources(
    summary: SessionSummary, sources: QuerySet[Message], *, received: Sequence[int]
) -> None:
    """Link a summary to the messages of a query: exactly those that the summariser received.

    One INSERT … SELECT, so that no row travels through Python. Then the links themselves are held
    against `received`, the positions of what was read in their order: a message that came in
    meanwhile, or that was pinned or unpinned into or out of the stretch, means LostRaceError, and
    nothing is stored (DESIGN.md, rule 2). Call it in the transaction that holds the session's
    positions.
    """
    pairs = sources.order_by().values_list(Value(summary.pk, output_field=UUIDField()), "pk")
    select, parameters = pairs.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO session_summary_messages (summary_id, message_id) " + select, parameters
        )
    linked = SessionSummaryMessage.objects.filter(summary=summary).order_by("message__position")
    if list(linked.values_list("message__position", flat=True)) != list(received):
        raise LostRaceError(
            "The messages that the summariser received are not those that stand there now: "
            "something came in, or was pinned or unpinned, while the summary was being written; "
            "nothing was stored."
        )

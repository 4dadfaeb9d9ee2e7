"""Which tables are large, and which hot queries may read one of them whole, with the reason."""

LARGE = frozenset({"messages", "session_summary_messages", "answer_requests", "session_incidents"})
WHY_WHOLE: dict[tuple[str, str], str] = {}
"""By kind of work and table. What needs no reason any more is taken out: a test says so."""

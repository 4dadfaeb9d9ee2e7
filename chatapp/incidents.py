"""Incidents: noting what did not go as planned, and what their codes mean in words.

Why: docs/architecture.md#every-failure-is-a-row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chatapp.formatting import number, shortened
from chatapp.llm.error_kinds import ErrorKind
from chatapp.messages.wire import Cleaner
from chatapp.models import Incident, Session

Kind = Incident.Kind


def note(session: Session, kind: str, code: str, text: str, **details: Any) -> None:
    """Store an incident of the session's active branch; a warning is stored once a session.

    `details` are numbers and the server's own words; what the conversation says is never put there.
    """
    cleaner = Cleaner()
    row = Incident(
        session=session,
        branch_id=session.active_branch_id,
        kind=kind,
        code=code[:40],
        text=cleaner.text(text),
        details=cleaner.json({name: value for name, value in details.items() if value is not None}),
    )
    Incident.objects.bulk_create([row], ignore_conflicts=kind == Kind.WARNING)


ERROR_WORDS: Mapping[str, str] = {
    ErrorKind.CONTEXT_OVERFLOW.value: "Request larger than the context window",
    ErrorKind.REQUEST_OVER_RATE.value: "Request larger than the limit per minute",
    ErrorKind.RATE_LIMITED.value: "The server asked to slow down",
    ErrorKind.UNAVAILABLE.value: "The server could not be reached or was overloaded",
    ErrorKind.TIMEOUT.value: "The server did not answer in time",
    ErrorKind.BROKEN_ANSWER.value: "The answer broke off, or its server could not use it",
    ErrorKind.OUTPUT_LIMIT.value: "The model does not write answers that long",
    ErrorKind.TOO_MANY_MESSAGES.value: "More messages than the server takes",
    ErrorKind.MESSAGE_TOO_LONG.value: "One message was too long",
    ErrorKind.BODY_TOO_LARGE.value: "The request had too many bytes",
    ErrorKind.BROKEN_PAIRS.value: "Tool calls and results did not belong together",
    ErrorKind.STATE_LOST.value: "The server no longer knew the conversation",
    ErrorKind.PARTS_REFUSED.value: "The server did not take the messages' parts",
    ErrorKind.PARAMETER_REFUSED.value: "The server did not take a parameter",
    ErrorKind.WRONG_WIRE.value: "The model is offered over another API",
    ErrorKind.ROLE_ORDER.value: "The server did not take this order of roles",
    ErrorKind.SYSTEM_ORDER.value: "The server did not take these system messages",
    ErrorKind.ARGUMENTS_REFUSED.value: "The server could not read a tool call's arguments",
    ErrorKind.IDS_REFUSED.value: "The server did not take the ids of tool calls",
    ErrorKind.TOOLS_REFUSED.value: "The server took no tools or no tool calls",
    ErrorKind.THOUGHTS_REFUSED.value: "The server did not take earlier reasoning",
    ErrorKind.AUTHENTICATION.value: "The server refused the key",
    ErrorKind.REGION_REFUSED.value: "The server does not serve this region",
    ErrorKind.QUOTA.value: "No credit or quota left",
    ErrorKind.CONTENT_FILTER.value: "The content filter refused it",
    ErrorKind.NOT_CONFIGURED.value: "No key is set",
    ErrorKind.REJECTED.value: "The server refused the request",
    ErrorKind.CANCELLED.value: "The turn was cancelled",
    ErrorKind.BAD_ANSWER.value: "The answer could not be read",
}
CHANGE_WORDS: Mapping[str, str] = {
    "stateless": "The whole history was sent",
    "sent_whole": "The whole history was sent once",
    "output_lowered": "A shorter answer was asked for",
    "images_left_out": "Images were left out",
    "pairs_repaired": "Tool calls were sent as text",
    "reasoning_left_out": "Earlier reasoning was left out",
    "plain_text": "Parts were sent as plain text",
    "message_cut": "A tool result was sent shortened",
    "drop": "A parameter was left out",
    "rename": "A parameter got another name",
    "stream": "The answer was asked for in pieces, or in one",
    "api": "The other API was used",
    "alternating_roles": "Neighbours of one role were joined",
    "one_system_message": "System messages were joined",
    "system_as_user": "The system prompt was put before the first message",
    "strict_ids": "Tool calls got short ids",
    "tools_as_text": "Tool calls were sent as text",
    "text_beside_calls": "A text was put beside tool calls",
    "with_thoughts": "Earlier reasoning was sent back",
    "without_thoughts": "Earlier reasoning was left out",
    "flat": "The conversation was sent as one text",
}
WARNING_WORDS: Mapping[str, str] = {
    "truncated_silently": "The server seems to leave the beginning out",
    "window_exceeded": "The window that is set is too small",
    "pins_over_share": "Pinned messages take more than their share of the window",
    "part_file_missing": "A file of a message is missing from the store",
    "stored_late": "The database took an answer only later",
    # Of a context backend that can be extended.
    "profile_unusable": "The profile names something that cannot be used",
    "trigger_failed": "A trigger failed and was left out",
    "rendering_failed": "A rendering failed; summaries were sent as system messages",
    "summaries_failing": "A model's summaries fail",
    "hook_failed": "A hook failed and was passed over",
}
CODE_WORDS = {**ERROR_WORDS, **CHANGE_WORDS, **WARNING_WORDS}
MEANINGS: Mapping[str, str] = {
    Kind.RETRY: "The same request was sent again after the wait.",
    Kind.CHANGE: "The request was sent again with this change, which held for the rest of the "
    "turn. What is stored stayed as it is.",
    Kind.WARNING: "The answer was used. This is said once a session, however often it happens.",
    Kind.ERROR: "The turn ended without an answer. The user's message is stored; a new turn "
    "answers it.",
}
CODE_MEANINGS: Mapping[str, str] = {
    "stored_late": "The answer waited in a file until the database took it. Nothing of it is lost; "
    "the server's log says what was wrong.",
    "stateless": "The request was sent again, and every later one of this session holds the whole "
    "history. What is stored stayed as it is.",
    "sent_whole": "The request was sent again with the whole history; the next turn goes on from "
    "its answer. What is stored stayed as it is.",
    "summaries_failing": "The turn went on without a new summary, or another model wrote it. This "
    "is said once a session; the front page says it until a summary of the model succeeds.",
    ErrorKind.CANCELLED.value: "Nothing is wrong: somebody stopped the turn. The user's message is "
    "stored; a new turn answers it.",
}
LEFT_OUT_WHY: Mapping[str, str] = {
    # Of a context backend that makes requests smaller.
    "halve_history": "the request was refused as too large, and nothing else made it small enough.",
    "history_limit": "the profile sends no more messages than that, and what stood before them was "
    "not summarised yet.",
    "head_overflow": "the profile had its summariser pass over them unread.",
}
LEFT_OUT_ONCE = frozenset({"halve_history"})
"""What was done for one request alone: the next one is whole again."""
LEFT_OUT_ON_PURPOSE = frozenset({"head_overflow"})
"""What somebody chose, and no later request gets back: at such an answer nobody has to look."""
TONES: Mapping[str, str] = {Kind.RETRY: "busy", Kind.CHANGE: "busy", Kind.WARNING: "busy"}
# Details that are told as numbers, in this order; the others stand on the incident's own page.
NUMBERS = (
    ("wait_seconds", "Wait"),
    ("attempt", "Attempt"),
    ("reported", "Tokens by the server"),
    ("counted", "Tokens by our count"),
    ("window", "Window that is set"),
    ("status", "HTTP status"),
    ("server_code", "Server's code"),
)
CODE_CHARS = 60


def code_words(code: str) -> str:
    """Return a code in words; one that is not known stays as it is."""
    return CODE_WORDS.get(code, code)


def left_out_why(code: str) -> str:
    """Return why an answer went without messages, as the end of a sentence."""
    return LEFT_OUT_WHY.get(code, f"{code}.")


def tone_of(incident: Incident) -> str:
    """Return the tone of an incident's badge."""
    if incident.code == ErrorKind.CANCELLED.value:
        return ""
    return TONES.get(incident.kind, "bad")


def meaning_of(incident: Incident) -> str:
    """Return what follows from an incident."""
    return CODE_MEANINGS.get(incident.code, MEANINGS.get(incident.kind, ""))


def numbers_of(details: Any, *, words: bool = True) -> list[tuple[str, str]]:
    """Return an incident's numbers by name, and what it was an answer to.

    Without `words`, what a server said in the place of a number is left out.
    """
    if not isinstance(details, dict):
        return []
    found = [
        (label, _told(name, details[name]))
        for name, label in NUMBERS
        if details.get(name) and (words or isinstance(details[name], int | float))
    ]
    error = details.get("error")
    return [*([("After", code_words(error))] if isinstance(error, str) else []), *found]


def said_in(details: Any) -> str:
    """Return the server's own words."""
    return str(details.get("said") or "") if isinstance(details, dict) else ""


def _told(name: str, value: Any) -> str:
    if name == "wait_seconds" and isinstance(value, int | float):
        return f"{value:,.1f} s"
    if name in ("status", "attempt") or not isinstance(value, int | float):
        return shortened(str(value), CODE_CHARS)
    return number(value)

"""The codes of problem documents: their status, what they mean, and which request can get which.

docs/api.md shows the same table, and the schema says of each operation which of them it answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from chatapp.llm.error_kinds import SENTENCES, ErrorKind

PROBLEM_TYPE = "application/problem+json"
FAILED_TURN = "failed_turn"
"""Stands in `problems` of a view for all codes of 502: no answer came of a model server."""

_KNOWN: tuple[tuple[int, str, str], ...] = (
    (400, "invalid", "Fields or parameters cannot be used; `errors` says which and why."),
    (400, "parse_error", "The body is no JSON object that can be read."),
    (401, "not_authenticated", "No API key was sent, and nobody is logged in."),
    (401, "authentication_failed", "The API key is unknown, revoked or expired."),
    (403, "permission_denied", "The CSRF token of a logged-in browser is missing or wrong."),
    (403, "missing_scope", "The API key has not the scope that the method takes."),
    (404, "not_found", "There is no such thing, or it belongs to somebody else."),
    (404, "no_request", "The message is no answer of a model, so it has no request."),
    (405, "method_not_allowed", "The address does not take the method; `Allow` names those."),
    (406, "not_acceptable", "No answer in the media type that was asked for."),
    (408, "request_timeout", "The body did not arrive in time."),
    (409, "turn_in_progress", "Another turn of the session runs; `Retry-After` says how long."),
    (409, "import_ended", "The import was cancelled; what was stored until then stays."),
    (409, "conflict", "It does not fit the state of things; `detail` says what does not."),
    (410, "request_not_kept", "Nothing that a request can be rebuilt from was written down."),
    (410, "request_changed", "What is stored now gives another request than the one sent."),
    (411, "length_required", "The body came in chunks, without its length."),
    (413, "body_too_large", "The body is larger than MAX_BODY_BYTES or MAX_IMPORT_BYTES."),
    (415, "unsupported_media_type", "The body is of a media type that the address does not read."),
    (422, "nothing_to_answer", "There is no message to answer, and no answer to continue."),
    (422, "key_reused", "The Idempotency-Key was used for another body in the session."),
    (422, "unknown_model", "The session's model is no longer among those of the installation."),
    (422, "unknown_format", "No message can be read in the file."),
    (422, "too_many_lines", "The file has more lines or items than MAX_IMPORT_LINES."),
    (422, "too_many_conversations", "The file has more than MAX_IMPORT_CONVERSATIONS."),
    (422, "too_many_values", "The file has more brackets and colons than can be read."),
    (422, "import_too_slow", "It took longer than IMPORT_SECONDS; what is stored stays."),
    (422, "not_stored", "A conversation cannot be stored; those before it are."),
    (429, "throttled", "More turns than TURN_RATE allows."),
    (429, "too_many_turns", "The user has as many turns under way as TURNS_PER_OWNER allows."),
    (429, "too_many_imports", "The user has as many imports under way as IMPORTS_PER_OWNER."),
    (429, "too_much_at_once", "The user has as much slow work under way as one user may."),
    (500, "internal_error", "The server failed; its log says why."),
    (503, "busy", "The database is busy with other work; send the request again."),
    (
        503,
        "unavailable",
        "The database cannot be used just now, or the disk is full; try again later.",
    ),
    (
        503,
        "answer_not_stored",
        "The model answered, and the database does not take it. `answer` holds it whole; a file "
        "on the server keeps it, and it is stored as soon as that can be done.",
    ),
)
# Two codes of failed turns stand here as well: the database may be `unavailable`, too.
STATUS_OF: Mapping[str, int] = MappingProxyType({code: status for status, code, _ in _KNOWN})
MEANINGS: Mapping[str, str] = MappingProxyType({code: text for _, code, text in _KNOWN})
CODE_OF_STATUS: Mapping[int, str] = MappingProxyType(
    {
        401: "not_authenticated",
        403: "permission_denied",
        404: "not_found",
        408: "request_timeout",
        411: "length_required",
        413: "body_too_large",
        500: "internal_error",
        503: "unavailable",
    }
)
"""The code of what is refused outside the API's views, where none is named."""
_ALWAYS = ("invalid", "not_authenticated", "authentication_failed", "missing_scope")
_DATABASE = ("busy", "unavailable")
_BODY = (
    "parse_error",
    "request_timeout",
    "length_required",
    "body_too_large",
    "unsupported_media_type",
)
_WAITS = (429, 503)


def problem_responses(codes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the responses of the schema for codes, by their status as text."""
    by_status: dict[int, list[str]] = defaultdict(list)
    found: dict[str, dict[str, Any]] = {}
    for code in codes:
        if code == FAILED_TURN:
            found["502"] = _of_failed_turns()
        else:
            by_status[STATUS_OF[code]].append(code)
    return found | {str(status): _response(status, own) for status, own in by_status.items()}


def usual_codes(*, writes: bool, has_body: bool, is_found: bool, any_accept: bool) -> list[str]:
    """Return the codes of a kind of request.

    `is_found`: it names something that may be missing; `any_accept`: no media type is refused.
    """
    codes = [*_ALWAYS, *_DATABASE]
    if writes:
        codes.append("permission_denied")
    if has_body:
        codes += _BODY
    if is_found:
        codes.append("not_found")
    if not any_accept:
        codes.append("not_acceptable")
    return codes


def _response(status: int, codes: list[str]) -> dict[str, Any]:
    words = "\n".join(f"* `{code}`: {MEANINGS[code]}" for code in codes)
    response = _document(status, codes, MEANINGS[codes[0]], words)
    if status in _WAITS or "turn_in_progress" in codes:
        response["headers"] = {"Retry-After": _retry_after(required=status in _WAITS)}
    if status == HTTPStatus.UNAUTHORIZED:
        response["headers"] = {"WWW-Authenticate": dict(_HOW_TO_LOG_IN)}
    return response


def _of_failed_turns() -> dict[str, Any]:
    words = "The model server gave no answer; what was sent is stored.\n\n"
    words += "\n".join(f"* `{kind.value}`: {SENTENCES[kind]}" for kind in ErrorKind)
    kind = ErrorKind.UNAVAILABLE
    codes = [kind.value for kind in ErrorKind]
    return _document(502, codes, SENTENCES[kind], words, example=kind.value)


def _document(
    status: int, codes: list[str], detail: str, words: str, *, example: str = ""
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": example or codes[0],
    }
    if "invalid" in codes:
        shown["errors"] = {"title": ["Must be a text, not a number."]}
    own = {"status": {"const": status}, "code": {"enum": codes}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Problem"}, {"properties": own}]}
    return {
        "description": words,
        "content": {PROBLEM_TYPE: {"schema": schema, "example": shown}},
    }


_HOW_TO_LOG_IN: Mapping[str, Any] = MappingProxyType(
    {
        "description": "The scheme that an API key is sent with.",
        "required": True,
        "schema": {"type": "string", "pattern": "^Bearer "},
    }
)


def _retry_after(*, required: bool) -> dict[str, Any]:
    return {
        "description": "Seconds after which the same request may work.",
        "required": required,
        "schema": {"type": "integer", "minimum": 0},
    }


PROBLEM_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "description": "A problem document (RFC 9457): what is wrong, for people and programs.",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string", "description": "The phrase of the status."},
            "status": {"type": "integer", "description": "The HTTP status once more."},
            "detail": {"type": "string", "description": "A sentence for people."},
            "code": {"type": "string", "description": "A word for programs."},
            "errors": {
                "type": "object",
                "description": "By the name of a field or parameter: what is wrong with it. "
                "Lists and objects have theirs by index or key.",
                "additionalProperties": {
                    "anyOf": [
                        {"type": "array", "items": {"type": "string"}},
                        {"type": "object"},
                    ]
                },
            },
            "answer": {
                "type": "object",
                "description": "Of `answer_not_stored`: what the model answered, as a message "
                "with the id that it will have, its thoughts, end and usage.",
                "properties": {
                    "id": {"type": "string", "format": "uuid"},
                    "role": {"const": "assistant"},
                },
                "required": ["id", "role"],
            },
        },
        "required": ["type", "title", "status", "detail", "code"],
    }
)

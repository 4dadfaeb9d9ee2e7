"""The OpenAPI schema's common parts: errors, and streams that are described by hand."""

from __future__ import annotations

from typing import Any

_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {"type": "object", "additionalProperties": True},
    },
    "required": ["type", "title", "status", "detail"],
}
_EVERYWHERE = {
    "400": "The request cannot be used; `errors` names the fields.",
    "401": "Not logged in.",
    "403": "Not allowed.",
    "404": "There is no such thing, or it belongs to somebody else.",
    "406": "No answer in the media type that was asked for.",
    "409": "It does not fit the state of things.",
    "411": "The body came in chunks, without its length.",
    "413": "The body is too large.",
    "415": "The body is no JSON.",
    "422": "Understood, but it cannot be done.",
    "429": "Too many requests.",
}


def add_problem_responses(
    result: dict[str, Any], generator: Any, request: Any, public: Any
) -> dict[str, Any]:
    """Add the problem document to every operation, once, here."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM
    for path in result.get("paths", {}).values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                for code, text in _EVERYWHERE.items():
                    operation["responses"].setdefault(code, _response(text))
    return result


def _response(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}

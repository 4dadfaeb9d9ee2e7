"""Findings of schemathesis that are none, each with the reason why; loaded by schemathesis.toml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

# Names of rows and settings: which there are, GET models/ and GET profiles/ say, no schema.
NAMES = {
    "model": "There is no model ",
    "profile": "There is no profile ",
    "adaptations": " was not learnt for this session",
}


def names_something_that_is_not_there(failure: Any, case: Any, response: Any) -> bool:
    """A session's model, profile or adaptation is refused by name where there is no such thing."""
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 400:
        return False
    errors = response.json().get("errors", {})
    return bool(errors) and all(
        name in NAMES and NAMES[name] in sentences[0] for name, sentences in errors.items()
    )


def asks_for_a_request_that_was_not_kept(failure: Any, case: Any, response: Any) -> bool:
    """Of a message's request 410 is an answer: no schema knows whether it can be rebuilt."""
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 410:
        return False
    codes = ("request_not_kept", "request_changed")
    return case.path.endswith("/request/") and response.json().get("code") in codes


def goes_on_behind_tool_results(failure: Any, case: Any, response: Any) -> bool:
    """An empty turn works behind posted tool results for one version; the schema has it no more."""
    if not isinstance(failure, AcceptedNegativeData) or not case.path.endswith("/turns/"):
        return False
    body = case.body
    return (
        isinstance(body, dict)
        and not any(body.values())
        and set(body)
        <= {
            "stream",
            "continue",
            "messages",
        }
    )


NO_FAULTS: list[Callable[[Any, Any, Any], bool]] = [
    names_something_that_is_not_there,
    asks_for_a_request_that_was_not_kept,
    goes_on_behind_tool_results,
]


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Return whether a finding is one."""
    return not any(is_none(failure, case, response) for is_none in NO_FAULTS)

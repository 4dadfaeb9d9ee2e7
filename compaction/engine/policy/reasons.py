"""Why a run was made, and why it came to nothing: the names that are stored with it."""

from __future__ import annotations

from enum import StrEnum

SINCE_SUMMARY = "since the last summary"
# Why a memory run was skipped: its profile chooses sentences, and memories take a model.
NO_MODEL = "no_model"


class Reason(StrEnum):
    """Every reason of ours, with its label and, for a trigger, what its limit counts.

    A plug-in's trigger has a reason of its own, which is shown as it is.
    """

    label: str
    measures: str

    def __new__(cls, value: str, label: str, measures: str = "") -> Reason:
        """Make a member of its stored value and its words."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        member.measures = measures
        return member

    MESSAGE_LIMIT = "message_limit", "Message limit reached", f"Messages {SINCE_SUMMARY}"
    TOKEN_LIMIT = "token_limit", "Token limit reached", f"Tokens {SINCE_SUMMARY}"
    HISTORY_SIZE = "history_size", "History too long", "Characters of the history as sent"
    VERSION = (
        "version",
        "Summary of a later version passed over",
        "Whether a summary cannot be read by this version of the program",
    )
    WINDOW = "window", "Window nearly full", "Tokens of the next request"
    AHEAD = "ahead", "Ahead of need", "Tokens of the next request, to summarise ahead"
    MESSAGE_WINDOW = "message_window", "Window of messages full", "Messages beyond the tail"
    MAXIMUM_AGE = (
        "maximum_age",
        "Messages waited long enough",
        "Maximum age of a message beyond the tail",
    )
    CACHE_EXPIRING = (
        "cache_expiring",
        "Prompt cache about to expire",
        "Characters of the history, shortly before the prompt cache expires",
    )
    HARD_LIMIT = (
        "hard_limit",
        "Hard limit reached",
        "Messages beyond the tail, at the latest",
    )
    # After a refusal: what was said so far; then tool results that were not seen, too.
    OVERFLOW = "overflow_retry", "Request was too large"
    OVERFLOW_AGAIN = "overflow_again", "Request was still too large"
    PRECHECK = "precheck", "Request would have been too large"
    # What a request did not wait for any longer.
    REST = "rest", "Rest of a compaction that a request waited for"
    MANUAL = "manual", "By hand"
    FORCED = "forced", "By hand, whatever it saves"
    RESUMMARIZE = "resummarize", "Re-summarised"
    # A version that a person wrote; no run makes one.
    EDITED = "edited", "Edited by a person"
    BRANCH = "branch", "Another branch was switched to"
    # The messages themselves are stored: a request would leave them out.
    ARCHIVE = "archive", "Stored unsummarised"


class RunCode(StrEnum):
    """Why a run came to nothing; compaction.vocabulary explains each one."""

    SUMMARISER_ERROR = "summariser_error"
    BAD_ANSWER = "bad_answer"
    STRATEGY_ERROR = "strategy_error"
    TOO_MANY_CALLS = "too_many_calls"
    NOTHING_TO_DO = "nothing_to_do"
    NOT_SMALLER = "not_smaller"
    NO_GAIN = "no_gain"
    LOST_RACE = "lost_race"
    OUT_OF_TIME = "out_of_time"
    INLINE_LIMIT = "inline_limit"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    OVER_BUDGET = "over_budget"
    BREAKER_OPEN = "breaker_open"
    UNKNOWN_MODEL = "unknown_model"
    INTERNAL_ERROR = "internal_error"
    BUSY = "busy"
    NOT_DUE = "not_due"
    HELD = "held_by_person"
    NOT_ACTIVE = "not_active"
    CANCELLED = "cancelled"
    HOOK_CANCELLED = "hook_cancelled"
    DELETED = "deleted"


_BY_VALUE: dict[str, Reason] = {str(member.value): member for member in Reason}


def reason_label(reason: str) -> str:
    """Return a reason in words; one of a plug-in keeps its name."""
    known = _BY_VALUE.get(reason)
    return known.label if known else reason


def reason_measures(reason: str, *, has_summary: bool) -> str:
    """Return what a trigger's limit counts; before the first summary, everything so far."""
    known = _BY_VALUE.get(reason)
    words = (known.measures or known.label) if known else reason
    return words if has_summary else words.replace(SINCE_SUMMARY, "so far")

"""How an answer ended, read from whatever word its server has for it."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType


class AnswerEnd(enum.Enum):
    """How an answer ended. The values are what the API shows."""

    WHOLE = "whole"
    CUT = "cut"
    FILTERED = "filtered"
    REFUSED = "refused"
    TOOL_CALLS = "tool_calls"
    BROKEN = "broken"
    UNKNOWN = "unknown"


CUT_OFF = "length"
"""The end of an answer that we read no further."""

# Without separators and in lower case; what is not named here is read by the fragments below.
_WORDS: Mapping[AnswerEnd, str] = MappingProxyType(
    {
        AnswerEnd.WHOLE: (
            "stop stopped eos eostoken stoptoken stopsequence stopword stopstring endturn endofturn"
            " complete completed completion done end ended finish finished finishreasonstop normal"
            " success succeeded ok eosfound stopstringfound"
        ),
        AnswerEnd.CUT: (
            "length limit incomplete truncated cutoff maxtoken maxtokens maxoutputtokens"
            " maxnewtokens maxcompletiontokens maxlength modellength tokenlimit outputlimit"
            " contextlength contextwindow contextlimit modelcontextwindowexceeded pauseturn"
            " maxpredictedtokensreached"
        ),
        AnswerEnd.FILTERED: (
            "contentfilter contentfiltered filter filtered safety recitation blocklist"
            " prohibitedcontent spii imagesafety language blocked moderation moderated sensitive"
            " guardrail guardrailintervened datainspectionfailed"
        ),
        AnswerEnd.REFUSED: "refusal refused refuse",
        AnswerEnd.TOOL_CALLS: "toolcall toolcalls tooluse functioncall functioncalls calls",
        AnswerEnd.BROKEN: (
            "error errored errortoxic errorlimit failed failure fail interrupted interrupt"
            " cancelled canceled cancel abort aborted timeout timedout networkerror disconnected"
            " insufficientsystemresource malformedfunctioncall malformedtoolcall malformedresponse"
            " unexpectedtoolcall toolerror internalerror servererror overloaded preempted"
            " userstopped toomanytoolcalls"
        ),
    }
)
_ENDS = {word: end for end, words in _WORDS.items() for word in words.split()}
# In this order: "tokens" of a limit would else be found in words about something else.
_FRAGMENTS = (
    (AnswerEnd.BROKEN, ("error", "malformed", "abort", "cancel", "timeout", "fail", "disconnect")),
    (AnswerEnd.FILTERED, ("filter", "safety", "prohibited", "moderat", "guardrail", "recitation")),
    (AnswerEnd.REFUSED, ("refus",)),
    (AnswerEnd.CUT, ("maxtoken", "maxoutput", "length", "truncat", "tokenlimit", "contextwindow")),
    (AnswerEnd.TOOL_CALLS, ("toolcall", "tooluse", "functioncall")),
)
_SEPARATORS = re.compile(r"[\W_]+")
# What some vendors' words begin with: FINISH_REASON_STOP.
_PREFIX = "finishreason"
# Longer is no word; nothing here is looked for in a text of any length.
_LONGEST_WORD = 100


def end_of(reason: str) -> AnswerEnd:
    """Return how an answer ended that has this finish reason, in any spelling.

    Case and separators do not count. No reason, and a word that nobody knows, are UNKNOWN.
    """
    if not reason:
        return AnswerEnd.UNKNOWN
    word = _SEPARATORS.sub("", reason[:_LONGEST_WORD]).lower().removeprefix(_PREFIX)
    if word in _ENDS:
        return _ENDS[word]
    for end, fragments in _FRAGMENTS:
        if any(fragment in word for fragment in fragments):
            return end
    return AnswerEnd.UNKNOWN

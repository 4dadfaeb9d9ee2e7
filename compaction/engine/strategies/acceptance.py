"""Which answers of a summariser count: whole, plausible, and smaller than what they replace."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.fidelity.replies import reply_instead
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.types import Item, Outcome, SummaryAnswer, SummaryRequest

CUT, TOOL_CALLS, UNKNOWN = "cut", "tool_calls", "unknown"
_NEVER_COUNT = frozenset({"filtered", "refused", "broken"})
# How summarisers end that nobody read the words of (SummaryAnswer.end).
_ENDS = dict.fromkeys(("length", "max_tokens", "model_length", "incomplete"), CUT) | {
    "content_filter": "filtered",
    "error": "broken",
    "failed": "broken",
    "aborted": "broken",
}
_ERROR_TEXT = lazy_pattern(
    r"^\s*(?:\{\s*\"error\"|error(?: code)?\s*[:：]|<!doctype html|<html|traceback \(most recent|"
    r"internal server error|bad gateway|service unavailable|upstream connect error)",
    re.IGNORECASE,
)
# However long: of a gateway, or what a server puts around its errors.
_PAGE = lazy_pattern(r"\s*(?:<!doctype html|<html\b|\{\s*\"error\"\s*:)", re.IGNORECASE)
_ASKS_FOR_INPUT = lazy_pattern(
    r"^\W*(?:please|could you|sorry,? (?:but )?|i(?:'m| am) sorry)[^.\n]{0,60}"
    r"(?:provide|share|paste|send|see)[^.\n]{0,40}(?:conversation|transcript|messages|text)",
    re.IGNORECASE,
)
_SHORT = 400

# Of a text no more is read, or four times the size asked for at four characters to a token.
LONGEST_TEXT_CHARS = 20_000
CHARS_PER_TARGET_TOKEN = 16
MOST_TEXT_CHARS = 1_000_000
"""However large a summary is asked for."""
# A text of more than so many times what is read of it was written without end: no beginning of it
# is a summary. What is shorter is judged by what is read, and cut to the size of a summary.
ENDLESS_TIMES = 5
# A sentence that is longer than this is cut where the reading ends.
SENTENCE_CHARS = 2_000


def most_chars(target_tokens: int) -> int:
    """Return how many characters of an answer are read where a text of that size is asked for."""
    return min(max(LONGEST_TEXT_CHARS, CHARS_PER_TARGET_TOKEN * target_tokens), MOST_TEXT_CHARS)


def capped(answer: SummaryAnswer, target_tokens: int) -> SummaryAnswer:
    """Return an answer of which everything else may be read.

    Before anything looks at a text: whoever writes it may write without end, and such an answer
    never counts. One that is only far too long counts for its beginning, which is still longer than
    a summary may be, and is treated as too long by whoever stores it.
    """
    most = most_chars(target_tokens)
    if len(answer.text) <= most:
        return answer
    text = answer.text[:most]
    if len(answer.text) > ENDLESS_TIMES * most:
        return replace(answer, text=text, was_capped=True, is_endless=True)
    ends = [end.end() for end in _SENTENCE_END.finditer(text, most - SENTENCE_CHARS)]
    return replace(answer, text=text[: ends[-1]] if ends else text, was_capped=True)


def problem_of(answer: SummaryAnswer) -> str:
    """Return why an answer is no summary, as a sentence; empty when it counts.

    An answer that was cut off is not judged here: see `is_cut_off`.
    """
    if answer.has_tool_calls or _end_of(answer) == TOOL_CALLS:
        return "The summariser asked for a tool instead of writing a summary."
    if not answer.text.strip():
        return "The summariser answered with an empty text."
    if (end := _end_of(answer)) in _NEVER_COUNT:
        return f"The summariser stopped with {answer.finish_reason or end}."
    if answer.is_endless:
        return (
            f"The summariser's answer was many times longer than asked for; of it, "
            f"{len(answer.text):,} characters were read."
        )
    if _is_hardly_text(answer.text):
        return "The summariser answered with hardly a letter or a digit."
    if len(answer.text) < _SHORT and _ERROR_TEXT.search(answer.text):
        return "The summariser answered with the text of an error."
    if _PAGE.match(answer.text):
        return "The summariser answered with the text of an error."
    if len(answer.text) < _SHORT and _ASKS_FOR_INPUT.search(answer.text):
        return "The summariser asked for the conversation instead of summarising it."
    return ""


def is_cut_off(answer: SummaryAnswer) -> bool:
    """Whether the answer ends because its room was used up, or for all that is known may do so."""
    end = _end_of(answer)
    return end == CUT or (end == UNKNOWN and not _ends_whole(answer.text))


def ran_out_of_room(answer: SummaryAnswer) -> bool:
    """Whether thoughts may have used up an answer's room: no sign that the input is too large."""
    spent = answer.has_thoughts or not answer.text.strip()
    return spent and not answer.had_whole_room and is_cut_off(answer)


def end_note(answer: SummaryAnswer) -> str:
    """Return what is to be noted of how an answer that counts ended, as a sentence; or nothing."""
    if _end_of(answer) != UNKNOWN:
        return ""
    reason = (
        f"the unknown word {answer.finish_reason[:40]!r}" if answer.finish_reason else "no word"
    )
    return f"The server gave {reason} for how the answer ended; the text ends like a whole one."


def _end_of(answer: SummaryAnswer) -> str:
    return answer.end or _ENDS.get(answer.finish_reason, "")


def _ends_whole(text: str) -> bool:
    """Whether a text ends as a sentence does; or as a list does whose lines all end without."""
    lines = text.rstrip().splitlines()
    if not lines or _SENTENCE_ENDS.search(lines[-1][-8:]):
        return bool(lines)
    items = [line for line in lines if _LIST_ITEM.match(line)]
    closed = sum(bool(_SENTENCE_ENDS.search(line.rstrip()[-8:])) for line in items)
    return bool(_LIST_ITEM.match(lines[-1])) and len(items) > 1 and not closed


def _is_hardly_text(text: str) -> bool:
    """Whether a text consists of signs: dots, dashes, boxes, what nobody sees."""
    signs = "".join(text.split())
    spoken = sum(map(str.isalnum, signs))
    return spoken == 0 or (len(signs) >= _SHORT and spoken < SHARE_SPOKEN * len(signs))


def says_nothing(text: str, request: SummaryRequest) -> str:
    """Return why a text says nothing, as a sentence; empty where its letters and digits say much.

    They are judged and nothing else: such a text has no sentences to look at. One that is longer
    than what it was made of is refused for its size.
    """
    if not text.strip():
        return ""
    if _is_hardly_text(text):
        return "The summariser answered with hardly a letter or a digit."
    read = sum(len(item.text) for item in request.items) + sum(map(len, request.texts))
    if len(text) < _SHORT or read <= len(text) < FAR_TOO_LONG_CHARS:
        return ""
    if _goes_round("".join(filter(str.isalnum, text)).lower()):
        return "The summariser repeated itself: the same few words stand there all along."
    if _is_unbroken(text):
        return "The summariser answered with letters and digits in a row that are no words."
    return ""


def refusal_of(answer: SummaryAnswer, request: SummaryRequest) -> str:
    """Return why an answer to a request does not count, as a sentence; empty when it does.

    For strategies: everything is judged here but the size, which the run looks at.
    """
    answer = capped(answer, request.longest_tokens)
    if is_cut_off(answer):
        return "The answer was cut off at the output limit."
    return problem_of(answer) or implausible(answer.text, request) or reply_of(answer, request)


def reply_of(answer: SummaryAnswer, request: SummaryRequest) -> str:
    """Return why an answer goes on with the conversation, as a sentence; empty when it does not.

    What a strategy asks for in words of its own may look like anything.
    """
    return "" if request.prompt else reply_instead(answer.text, request)


def does_not_shrink(before: int, after: int) -> str:
    """Return why a summary of `after` tokens may not replace `before` tokens; empty when it may."""
    if after < before:
        return ""
    return f"The summary ({after} tokens) is not smaller than what it replaces ({before} tokens)."


def fault_of_outcome(outcome: Any, items: Sequence[Item], *, whole: bool) -> str:
    """Return what a strategy did wrong, as words that follow its name; empty where it is sound.

    It may have read fewer items than it was given, but the oldest ones, without a gap and without
    parting a group; all of them where the `whole` is replaced.
    """
    if not isinstance(outcome, Outcome):
        return "returned something else than an Outcome"
    read = [item.id for item in outcome.items]
    if not read or read != [item.id for item in items[: len(read)]]:
        return "says that it read other messages than it was given"
    if len(read) < len(items) and (whole or len(read) not in legal_cuts(items)):
        return "left out messages that belong together with those that it read"
    try:
        files = (outcome.files_read, outcome.files_modified)
        json.dumps([dict(outcome.metadata), *files, outcome.files_created, outcome.files_deleted])
    except (TypeError, ValueError) as error:
        return f"returned metadata that cannot be stored as JSON ({error})"
    return ""


# A line as the transcript has it, "[3] user: …", or as dialogues are written, "Assistant: …".
_NUMBERED = lazy_pattern(
    r"^\W*(?:[0-9a-f]{8} )?\[\d+\]\s*(?:user|assistant|tool|system)\b", re.IGNORECASE
)
_SPEAKER = lazy_pattern(r"^\W*(?:user|assistant|human|ai|system|用户|助手)\s*[:：]", re.IGNORECASE)
# A fence of ours with its mark (prompts.fenced): quoting one without it is nobody's fault.
_FENCE = lazy_pattern(
    r"</?(?:conversation|previous-summary|part|instructions|recent|missing) id=[0-9a-f]{8}>"
)
# A line of a form: "- [what the user wants]", "1. <next step>".
_PLACEHOLDER = lazy_pattern(
    r"\s{0,8}(?:[-*•]|\d{1,3}[.)])?\s{0,4}(?:\[[^\]\n]{3,200}\]|<[^>\n]{3,200}>|\{[^}\n]{3,200}\})"
    r"[.\s]{0,4}"
)
# Each space and each full stop begins one match at most: a line of dots costs one look a dot.
# It begins with one of a few characters whatever follows: so the search passes quickly on.
_SENTENCE_END = lazy_pattern(
    r"[\s。！？](?:(?<=[.!?。！？]\s)\s*|(?<=[。！？])[。！？]*|(?<=\n)\n*)"
)
_SENTENCE_ENDS = lazy_pattern(r"[.!?…。！？][\"'”’)\]*`」』）]{0,3}$")
_LIST_ITEM = lazy_pattern(r"\s{0,8}(?:[-*•|]|\d{1,3}[.)])")
# What only somebody who read it can know: PX-4471, read_file, src/app.py, 0x1f, v2.3.1.
_IDENTIFIER = lazy_pattern(r"(?<![\w/.-])(?=[\w/.-]*(?:\d|_|/))[A-Za-z0-9][\w/.-]{3,60}\w")

SHARE_SPOKEN = 0.2
SHARE_ECHOED = 0.5
SHARE_REPEATED = 0.2
SHORTEST_SENTENCE = 16
FEWEST_SENTENCES = 4
FEWEST_IDENTIFIERS = 3
SHARE_INVENTED = 0.5
# Lists and tables repeat their words, but not what stands between: a number, a name.
SHARE_NEW = 0.15
PIECE_CHARS = 32
# Addresses are shorter, and most of a text are none; Chinese has no spaces.
LONGEST_WORD = 80
SHARE_UNBROKEN = 0.5
# No limit of the answer seems to have held: no summary is that long.
FAR_TOO_LONG_CHARS = 20_000


def implausible(text: str, request: SummaryRequest) -> str:
    """Return why a text is hardly a summary of the request, as a sentence; empty when it may be."""
    return odd(text, request) or invention_of(text, request)


def odd(text: str, request: SummaryRequest) -> str:
    """Return why a text is no summary of anything, as a sentence; empty when it may be one."""
    if _is_echo(text):
        return "The summariser went on with the dialogue instead of summarising it."
    if _is_form(text):
        return "The summariser gave the form of a summary back without filling it in."
    if repeated_share(text) > SHARE_REPEATED:
        return "The summariser repeated itself: a fifth of its text and more stands there twice."
    return says_nothing(text, request)


def invention_of(text: str, request: SummaryRequest) -> str:
    """Return that most of what a text names is invented, as a sentence; empty when it is not."""
    invented = _invented(text, request)
    if invented:
        return (
            f"The summariser named things that nobody wrote, {invented[0]} for example "
            f"({len(invented)} in all)."
        )
    return ""


def _is_echo(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    tagged = [line for line in lines if _NUMBERED.match(line) or _SPEAKER.match(line)]
    return bool(_FENCE.search(text)) or (
        len(tagged) > 1 and len(tagged) >= SHARE_ECHOED * len(lines)
    )


def _is_form(text: str) -> bool:
    """Whether most lines that are no headings hold nothing but a placeholder in brackets."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    empty = [line for line in lines if _PLACEHOLDER.fullmatch(line)]
    return len(empty) > 1 and len(empty) >= SHARE_ECHOED * len(lines)


def repeated_share(text: str) -> float:
    """Return the part of the text, in characters, whose sentences stood there before."""
    sentences = [one.strip().strip(".!?").lower() for one in _SENTENCE_END.split(text)]
    sentences = [one for one in sentences if len(one) >= SHORTEST_SENTENCE]
    if len(sentences) < FEWEST_SENTENCES:
        return 0.0
    seen: set[str] = set()
    repeated = 0
    for one in sentences:
        repeated += len(one) if one in seen else 0
        seen.add(one)
    return repeated / sum(len(one) for one in sentences)


def _is_unbroken(text: str) -> bool:
    """Whether most of a text stands in words longer than there are: an encoded file, a key."""
    words = text.split()
    longest = sum(len(one) for one in words if len(one) >= LONGEST_WORD and one.isascii())
    return longest > SHARE_UNBROKEN * sum(map(len, words))


def _goes_round(spoken: str) -> bool:
    """Whether letters and digits come in the same order again and again."""
    places = range(max(0, min(len(spoken), LONGEST_TEXT_CHARS) - PIECE_CHARS + 1))
    pieces = {spoken[place : place + PIECE_CHARS] for place in places}
    return len(spoken) >= _SHORT and len(pieces) < SHARE_NEW * len(places)


def _invented(text: str, request: SummaryRequest) -> list[str]:
    """Return the identifiers that nobody wrote, where they are most of those that are named."""
    named = list(dict.fromkeys(_IDENTIFIER.findall(text)))
    if len(named) < FEWEST_IDENTIFIERS:
        return []
    source = _source(request)
    invented = [one for one in named if one.lower() not in source]
    return invented if len(invented) > SHARE_INVENTED * len(named) else []


def _source(request: SummaryRequest) -> str:
    parts = [request.previous, request.instructions, *request.texts]
    # Who chooses clauses chooses from these, too, and a merge's texts hold few of them.
    parts += [unit.text for unit in request.units]
    for item in request.items:
        parts += [item.text, item.thinking, item.tool_name]
        parts += [f"{call.name} {call.arguments}" for call in item.tool_calls]
    return "\n".join(parts).lower()

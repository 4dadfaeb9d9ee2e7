"""Cutting tool results that are too long: how long they may be, which are cut, and where.

One set of pure functions for every scope: in a request, in a replayed branch, and before storing
(docs/compaction.md#tool-results). Lengths are characters, as Python counts them, so a cut never
splits one.
"""

from __future__ import annotations

import enum
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from chatapp.messages.pairing import pair
from compaction.engine.parameters import Profile
from compaction.engine.types import Item


def named_results(items: Sequence[Item]) -> list[Item]:
    """Return the items, each result with the name of the tool that it is from.

    Many clients send a result with the id of its call alone.
    """
    places = (
        (item.tool_call_id if item.role == "tool" else None, [call.id for call in item.tool_calls])
        for item in items
    )
    named = list(items)
    for index, (asked, number) in pair(places).items():
        if not items[index].tool_name:
            name = items[asked].tool_calls[number].name
            named[index] = replace(items[index], tool_name=name)
    return named


def limited_results(
    items: Iterable[Item], max_chars: int | None, *, beginning: bool = False
) -> Iterator[Item]:
    """Yield the items with tool results of at most `max_chars` characters; None cuts none.

    One result that alone exceeds the summariser's window could not be summarised at all. Tokens
    stay those of the stored message, which the summary replaces. With `beginning`, exactly the
    first characters stay, with a notice of how many are gone behind them.
    """
    cut = first_characters if beginning else cut_text
    for item in items:
        if max_chars is not None and item.role == "tool" and len(item.text) > max_chars:
            yield replace(item, text=cut(item.text, max_chars))
        else:
            yield item


def first_characters(text: str, limit: int) -> str:
    """Return the first characters of a text, and a notice of how many were left out."""
    gone = len(text) - limit
    if gone == 1:
        return f"{text[:limit]}\n\n[1 more character of this result was left out here]"
    return f"{text[:limit]}\n\n[{gone} more characters of this result were left out here]"


CHARS_PER_TOKEN = 4
# Where a line ends in the last fifth of what may stay, the cut falls there.
LINE_SHARE = 0.8
# A result's end is kept, too, when it looks as if it said how things went.
TAIL_LOOKED_AT_CHARS = 2000
TAIL_SHARE = 0.3
LONGEST_TAIL_CHARS = 4000
_TELLING_END = re.compile(
    r"error|exception|failed|fatal|traceback|panic|stack trace|errno|exit code"
    r"|错误|失败|异常|\btotal\b|\bsummary\b|\bresult\b|\bcomplete|\bfinished\b|\bdone\b|\}\s*\Z",
    re.IGNORECASE,
)
# What stands for a notice that would be longer than what may stay, and for a block left out whole.
SHORT_NOTICE = "[truncated]"
LEFT_OUT = "…"
# Room for a notice with any numbers, generously; a result keeps its minimum beside it.
NOTICE_CHARS = 400
_NOTICE = re.compile(
    # Bounded, so that a tool's own text can neither be read as a monstrous number nor take long.
    r"\n\n\[This tool result was truncated [^:\[\]]{1,60}: (\d[\d,]{0,14}) of its (\d[\d,]{0,14})"
    r" characters [^\[\]]{1,300}\](?:\n\n)?"
)
# A request whose results share what there is could be so many times larger and still fit.
SAFE_MARGIN = 1.2
FLOOR_STEPS = 8
# A character and what belongs to it are this long at most: an emoji of a family, an accent.
LONGEST_CHARACTER = 16
_JOINERS = "\u200d\ufe0e\ufe0f"

# marker(characters gone, characters there were) -> the notice
Marker = Callable[[int, int], str]


def sent_marker(gone: int, total: int) -> str:
    """Return the notice of a result that was cut to fit the window."""
    return (
        f"[This tool result was truncated to fit the context window: {gone:,} of its {total:,} "
        "characters are left out. Ask for a smaller part (a range of lines, a filter, a narrower "
        "search) to see them.]"
    )


def stored_marker(gone: int, total: int) -> str:
    """Return the notice of a result that was cut before it was stored."""
    return (
        f"[This tool result was truncated when it was stored: {gone:,} of its {total:,} characters "
        "are kept apart. Run the tool again for one part of it (offset and limit, one section) to "
        "read on.]"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLimits:
    """How long a tool result may be.

    `share` is the part of the window that one result may take.
    """

    share: float = 0.3
    hard_max_chars: int = 400_000
    min_keep_chars: int = 2_000

    def max_chars(self, window_tokens: int) -> int:
        """Return the longest result in characters."""
        tokens = math.floor(round(window_tokens * self.share, 6))
        return min(tokens * CHARS_PER_TOKEN, self.hard_max_chars)

    def min_keep(self, window_tokens: int) -> int:
        """Return what stays of a result in any case; nothing where the window is too small for it.

        With a floor above the limit, a small window would never get its request small.
        """
        fits = self.max_chars(window_tokens) >= self.min_keep_chars + NOTICE_CHARS
        return self.min_keep_chars if fits else 0


def limits_of(profile: Profile) -> ResultLimits:
    """Return the limits that a profile sets for tool results."""
    return ResultLimits(
        share=profile.max_tool_result_context_share,
        hard_max_chars=profile.hard_max_tool_result_chars,
        min_keep_chars=profile.min_keep_chars,
    )


# --- which results, and how much of each ----------------------------------------------------------


def is_oversized(sizes: Sequence[int], *, single: int, together: int) -> bool:
    """Whether a result is longer than `single`, or several are longer than `together`."""
    return max(sizes, default=0) > single or (len(sizes) > 1 and sum(sizes) > together)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRoom:
    """The characters of tool results that fit beside the rest of a request and the answer.

    `shared` is the part of `whole` that results share which are too many for their floors.
    """

    whole: int = 0
    shared: int = 0


def room_of(*, usable: float, rest: float, characters: int, tokens: int) -> ResultRoom:
    """Return the room that a request of `usable` tokens has for tool results, beside the `rest`.

    `characters` and `tokens` are what the results have: so much is one of the other. What is shared
    leaves a sixth of the request free. A server that counts otherwise would refuse one that is
    full, and the next message would have no place in it.
    """
    each = characters / max(1, tokens)
    whole, shared = ((most - rest) * each for most in (usable, usable / SAFE_MARGIN))
    return ResultRoom(whole=max(0, math.floor(whole)), shared=max(0, math.floor(shared)))


NO_ROOM = ResultRoom()


def allot(
    sizes: Sequence[int],
    *,
    single: int,
    together: int,
    min_keep: int = 0,
    room: ResultRoom = NO_ROOM,
) -> dict[int, int]:
    """Return {index: characters it may have} for the results that have to be cut.

    First those above `single`; then, while all together exceed `together`, the newest are reduced
    too, none below `min_keep` and a notice (each keeps its beginning), so the older ones may
    follow. Where so many results have no `room` for that, they share it evenly, or `together` where
    that is more. The room's share goes in steps: each message leaves less of it, and a prompt cache
    is lost where all of them change.
    """
    floor = min_keep + NOTICE_CHARS if min_keep else 0
    if sum(min(size, floor) for size in sizes) > room.whole:
        step = max(1, floor // FLOOR_STEPS)
        of_room = even_share(sizes, room.shared) // step * step
        floor = min(floor, max(of_room, even_share(sizes, together)))
    targets = [min(size, single) for size in sizes]
    over = sum(targets) - together if len(targets) > 1 else 0
    for index in range(len(targets) - 1, -1, -1):
        spare = max(0, min(over, targets[index] - floor))
        targets[index] -= spare
        over -= spare
    return {
        index: target
        for index, (size, target) in enumerate(zip(sizes, targets, strict=True))
        if target < size
    }


def even_share(sizes: Sequence[int], total: int) -> int:
    """Return what each may have at most, so that all have `total` together; shorter ones less."""
    left = total
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count >= left:
            return left // count
        left -= size
    return max(sizes, default=0)


def least_of(limit: int, min_keep: int) -> int:
    """Return what stays of a result that may have `limit` characters, its notice apart."""
    return min(min_keep, max(0, limit - NOTICE_CHARS))


# --- cutting --------------------------------------------------------------------------------------


def cut_blocks(
    texts: Sequence[str],
    limit: int,
    *,
    min_keep: int = 0,
    marker: Marker = sent_marker,
    keep_ends: bool = True,
) -> tuple[str, ...]:
    """Return the text blocks of one result, sharing `limit` characters in proportion.

    `min_keep` is shared the same way. A result within the limit comes back as it is. Where the
    blocks are so many that each one's share holds no notice, they are kept in order instead.
    """
    total = sum(map(len, texts))
    if total <= limit:
        return tuple(texts)
    if len(texts) > 1 and max(limit, min_keep) < NOTICE_CHARS * len(texts):
        return _first_blocks(texts, max(limit, min_keep), marker)
    return tuple(
        cut_text(
            text,
            limit * len(text) // total,
            min_keep=min_keep * len(text) // total,
            marker=marker,
            keep_end=keep_ends,
        )
        for text in texts
    )


def _first_blocks(texts: Sequence[str], limit: int, marker: Marker) -> tuple[str, ...]:
    """Return the first blocks whole, the one where the limit ends cut, a sign for the others."""
    left = limit - len(texts) * len(LEFT_OUT)
    kept: list[str] = []
    for text in texts:
        if left <= 0:
            kept.append(text and LEFT_OUT)
            continue
        kept.append(cut_text(text, left, marker=marker, keep_end=False))
        left -= len(text) if len(text) <= left else left
    return tuple(kept)


def store_blocks(texts: Sequence[str], limit: int, *, min_keep: int = 0) -> tuple[str, ...]:
    """Return the blocks as they are stored: the guard at storing has its own notice."""
    return cut_blocks(texts, limit, min_keep=min_keep, marker=stored_marker, keep_ends=False)


def cut_text(
    text: str,
    limit: int,
    *,
    min_keep: int = 0,
    marker: Marker = sent_marker,
    keep_end: bool = True,
) -> str:
    """Return the text with at most `limit` characters, and a notice of what is gone.

    At least `min_keep` characters of it stay, even if that is more than the limit; the outcome is
    never longer than the text. The cut falls on a line's end where one is near. An end that tells
    how things went stays, too, with the notice before it.
    """
    if len(text) <= limit:
        return text
    body, total = _without_notice(text)
    room = len(_framed(marker(total, total)))
    budget = max(min_keep, limit - room)
    if budget <= 0:
        return _least(body, limit)
    tail = _telling_end(body, budget) if keep_end and budget > 2 * min_keep else ""
    budget -= len(tail) + (2 if tail else 0)
    # What was cut before ended at a line's end, or where none was near.
    lines = body if body is text else f"{body}\n"
    head = body[: _whole(body, _line_end(lines, budget, min_keep))]
    notice = _framed(marker(total - len(head) - len(tail), total))
    cut = f"{head}{notice}\n\n{tail}" if tail else f"{head}{notice}"
    # A text that was cut before has hardly more than its minimum: it is left alone.
    spared = room if body is not text and len(cut) > limit else 0
    return cut if len(cut) + spared < len(text) else text


def _without_notice(text: str) -> tuple[str, int]:
    """Return what a text that was cut before still holds, and how long it was in the beginning.

    A notice is believed only if its numbers fit the text: a tool may have written one itself.
    """
    found = _NOTICE.search(text)
    if found:
        gone, total = (int(number.replace(",", "")) for number in found.groups())
        body = text[: found.start()] + text[found.end() :]
        if len(body) + gone == total:
            return body, total
    return text, len(text)


def _whole(text: str, cut: int) -> int:
    """Return the nearest place before a cut that parts no accent or emoji from its character."""
    for place in range(cut, max(0, cut - LONGEST_CHARACTER), -1):
        after = text[place : place + 1]
        joined = after and (unicodedata.combining(after) or after in _JOINERS)
        if not joined and text[place - 1 : place] != "\u200d":
            return place
    return cut


def _framed(notice: str) -> str:
    return f"\n\n{notice}"


def _least(text: str, limit: int) -> str:
    """Return what fits where the notice alone would not: the head and one word about the rest."""
    kept = limit - len(SHORT_NOTICE)
    return text[:kept] + SHORT_NOTICE if kept > 0 else text[: max(0, limit)]


def _line_end(text: str, budget: int, min_keep: int) -> int:
    """Return where to cut: at the last line's end near the budget, or right at it.

    Where that would leave less than `min_keep`, the next line's end counts, if it is near.
    """
    newline = text.rfind("\n", 0, budget + 1)
    cut = newline if newline > LINE_SHARE * budget else budget
    if cut < min_keep:
        further = text.find("\n", min_keep, min_keep + math.ceil(min_keep * (1 - LINE_SHARE)))
        cut = further if further >= 0 else min_keep
    # The two halves of a Windows line end stay together.
    return cut - 1 if cut > 0 and text[cut - 1 : cut + 1] == "\r\n" else cut


def _telling_end(text: str, budget: int) -> str:
    """Return the end of a text that says how things went, from a line's start on; else nothing."""
    if not _TELLING_END.search(text[-TAIL_LOOKED_AT_CHARS:]):
        return ""
    size = min(math.floor(budget * TAIL_SHARE), LONGEST_TAIL_CHARS)
    tail = text[len(text) - size :] if size > 0 else ""
    newline = tail.find("\n", 0, math.ceil(len(tail) * (1 - LINE_SHARE)))
    return tail[newline + 1 :]


# --- before sending -------------------------------------------------------------------------------

# Part of a window that is never reserved for the answer, or nothing could be sent.
LEAST_PROMPT_TOKENS = 8000
# Cutting alone is tried when it frees this much more than is needed.
SPARE_CHARS = 2048
SPARE_FACTOR = 1.5


class Route(enum.Enum):
    """What makes a request fit, before it is sent."""

    FITS = "fits"
    COMPACT = "compact"
    TRUNCATE = "truncate"
    COMPACT_THEN_TRUNCATE = "compact_then_truncate"


def effective_reserve(window: int, reserve: int) -> int:
    """Return the tokens kept free for the answer; a small window keeps half for the request."""
    return min(reserve, max(0, window - min(LEAST_PROMPT_TOKENS, max(1, window // 2))))


def precheck(
    *, tokens: int, window: int, reserve: int, reducible_chars: int, margin: float = 1.2
) -> Route:
    """Return what to do before a request of `tokens` is sent.

    `reducible_chars` is what tool results would lose if they were cut.
    """
    over = math.ceil(margin * tokens) - (window - effective_reserve(window, reserve))
    if over <= 0:
        return Route.FITS
    if reducible_chars <= 0:
        return Route.COMPACT
    needed = CHARS_PER_TOKEN * over
    if reducible_chars >= max(needed + SPARE_CHARS, SPARE_FACTOR * needed):
        return Route.TRUNCATE
    return Route.COMPACT_THEN_TRUNCATE

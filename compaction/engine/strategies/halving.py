"""Around halving: how many calls it takes, its parts, and texts cut when no halving is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction.engine.extractive.summarizer import ExtractiveSummarizer
from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import split_point
from compaction.engine.provenance import Unit
from compaction.engine.types import Item, SummaryAnswer, SummaryRequest, TokenCounter

# How much larger than the summariser's room an input must be before its call is saved.
CLEARLY_TOO_LARGE = 1.25


def is_clearly_too_large(tokens: int, limit: int) -> bool:
    """Whether a call is sure to be refused, by more than two ways of counting can differ."""
    return tokens > limit * CLEARLY_TOO_LARGE


def estimate_calls(
    items: Sequence[Item],
    limit: int | None,
    profile: Profile,
    *,
    previous_tokens: int = 0,
    depth: int = 0,
) -> int:
    """Return the number of calls for items when one call takes at most `limit` tokens.

    It follows BisectSummary: a refused call, the two halves, their merge; `previous_tokens` is the
    summary that the first part takes in. None means no limit. Merges are taken to fit.
    """
    tokens = previous_tokens + sum(item.read_tokens for item in items)
    if limit is None or tokens <= limit:
        return 1
    saves = profile.planned_split and profile.bisect_enabled
    refused = 0 if saves and is_clearly_too_large(tokens, limit) else 1
    may_halve = (
        profile.bisect_enabled
        and depth < profile.bisect_max_depth
        and len(items) > profile.bisect_min_messages
    )
    cut = split_point(items, profile.bisect_min_messages) if may_halve else None
    if cut is None:
        return refused
    left = estimate_calls(
        items[:cut], limit, profile, previous_tokens=previous_tokens, depth=depth + 1
    )
    return refused + left + estimate_calls(items[cut:], limit, profile, depth=depth + 1) + 1


def cut_in_halves(items: Sequence[Item], profile: Profile, depth: int) -> int | None:
    """Return where an input is halved; None where the profile, or a group, leaves no place."""
    may_halve = profile.bisect_enabled and depth < profile.bisect_max_depth
    if not may_halve or len(items) <= profile.bisect_min_messages:
        return None
    return split_point(items, profile.bisect_min_messages)


@dataclass(slots=True, kw_only=True)
class Part:
    """The summary of one part of the input, while the tree is being climbed."""

    text: str
    chunk_count: int
    max_depth: int
    truncated: bool
    leaf_count: int
    split_depth: int
    # What a summariser without a model keeps for later passes.
    units: tuple[Unit, ...] = ()


def leaf(answer: SummaryAnswer, depth: int) -> Part:
    """Return an answer to one call as a part of its own."""
    return Part(
        text=answer.text,
        units=answer.units,
        chunk_count=1,
        max_depth=depth,
        truncated=False,
        leaf_count=1,
        split_depth=depth,
    )


def joined_parts(parts: Sequence[Part]) -> Part:
    """Return parts that stand side by side as one without a text."""
    return Part(
        text="",
        units=tuple(unit for part in parts for unit in part.units),
        chunk_count=sum(part.chunk_count for part in parts),
        max_depth=max(part.max_depth for part in parts),
        truncated=any(part.truncated for part in parts),
        leaf_count=sum(part.leaf_count for part in parts),
        split_depth=max(part.split_depth for part in parts),
    )


def made_here(
    request: SummaryRequest, *, size: int, chooses: bool, counter: TokenCounter, depth: int
) -> SummaryAnswer:
    """Return a text made without the model: chosen sentences, or the head of everything.

    Two texts that have the size asked for together are joined as they are: nothing is lost. `size`
    are the tokens of the input; without `chooses` it is always the head.
    """
    joined = "\n\n".join(request.texts)
    if joined and counter.count(joined) <= request.target_tokens:
        return SummaryAnswer(text=joined, output_tokens=counter.count(joined))
    if chooses:
        chosen = ExtractiveSummarizer(counter=counter).summarize(request)
        if chosen.text.strip():
            return chosen
    text = forced_truncation(request, counter=counter, depth=depth)
    return SummaryAnswer(text=text, input_tokens=size, output_tokens=counter.count(text))


# The smallest budget of a text that is cut by force.
FORCED_MINIMUM_TOKENS = 128
LONGEST_TOKEN = 16


def forced_truncation(request: SummaryRequest, *, counter: TokenCounter, depth: int) -> str:
    """Return the head of the text, one line a message, within max(target, 128) tokens.

    The summary that came before stands first, so it is the last thing to be lost.
    """
    lines = [request.previous] if request.previous else []
    lines += [f"{item.role}: {item.text}" for item in request.items]
    lines += request.texts
    notice = f"[Shortened by force at level {depth}; the messages themselves are stored.]\n"
    budget = max(request.target_tokens, FORCED_MINIMUM_TOKENS)
    return cut_to_tokens(notice + "\n".join(lines), budget, counter)


def cut_to_tokens(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the longest head of a text within `tokens`; never splits a character."""
    if (
        counter.count(text[: tokens * LONGEST_TOKEN]) <= tokens
        and len(text) <= tokens * LONGEST_TOKEN
    ):
        return text
    low, high = 0, min(len(text), tokens * LONGEST_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]

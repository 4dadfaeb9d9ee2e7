"""A fallback digest: what is sent of messages that no summariser could take in, until one can.

To store the plain messages and move on would let nothing wait for ever, but put a megabyte of them
into every prompt (docs/decisions/0008-a-fallback-digest-beside-the-summaries.md). This one says
what it is, is always smaller than what it replaces, and each message has the same room in it.

It takes in the fallback digest before it, and nothing else: what a summariser wrote stays beside it
and is sent, too, so that an outage costs no memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from compaction.engine.parameters import Profile
from compaction.engine.protocols import PlanFacts
from compaction.engine.strategies.base import files_of, plan_by_cut
from compaction.engine.strategies.prompts import BETWEEN_BLOCKS
from compaction.engine.types import (
    NO_FILES,
    CallEstimate,
    Files,
    Item,
    Outcome,
    Plan,
    Step,
    Summarizer,
    SummaryJob,
    SummaryRequest,
    TokenCounter,
)

KIND = "archive"
ALGORITHM = "archive_v1"
# Part of the messages that a fallback digest may keep at most, so that storing it always frees
# something.
LARGEST_SHARE = 0.9
# Shorter pieces of messages say nothing: then the oldest are left out.
SHORTEST_CHARS = 12
_HEAD = "[Archive"
_NOTICE = (
    f"{_HEAD}: these messages could not be summarised and stand here as they were, shortened. All "
    "of them are stored.]"
)
_SHORT = f"{_HEAD}.]"
_LEFT_OUT = f"{_HEAD}: there is no room for the oldest; they are stored.]"
_CUT = "…"
# Characters that hardly any token exceeds.
LONGEST_TOKEN = 16


def make_digest(
    items: Sequence[Item],
    *,
    earlier: str = "",
    counter: TokenCounter,
    max_tokens: int,
    sent_again: frozenset[int] = frozenset(),
    files: Files = NO_FILES,
    tool_actions: str = "",
    on_step: Callable[[Step], None],
) -> Outcome:
    """Return the messages, shortened and marked as a fallback digest, as an Outcome of no model
    call.

    `earlier` is the text whose place it takes, if there is one: the fallback digest before it. The
    new one is smaller than both together. `sent_again` are the positions of messages that are sent
    verbatim all the same (pinned ones): nothing is freed by them, and they need no room. `files`
    are those that the summaries before it name; `tool_actions` are the profile's.
    """
    started = time.monotonic()
    alone = [item for item in items if item.position not in sent_again]
    own = sum(item.tokens for item in alone)
    before = counter.count(earlier) if earlier else 0
    room = min(max_tokens, before + int(own * LARGEST_SHARE))
    lines = [*_lines_of(earlier), *map(_line, alone)]
    text = _text(lines, counter, room, is_whole=_LEFT_OUT not in earlier)
    step = _step(
        SummaryRequest(kind=KIND, items=tuple(items), previous=earlier),
        text,
        input_tokens=own + before,
        output_tokens=counter.count(text),
        duration_ms=round((time.monotonic() - started) * 1000),
    )
    on_step(step)
    return Outcome(
        text=text,
        items=tuple(items),
        chunk_count=1,
        max_depth=0,
        truncated=True,
        input_tokens=own + before,
        output_tokens=step.output_tokens,
        steps=(step,),
        is_digest=True,
        algorithm=ALGORITHM,
        writer=KIND,
        metadata={"leaf_count": 1, "split_depth": 0},
        **files_of(items, files, tool_actions),
    )


class DigestStrategy:
    """Keeps the messages themselves, shortened: the last way when no summary can be made."""

    uses_summarizer = False
    version = ALGORITHM
    plans_from_tail = True

    def plan(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        """Return the plan of the profile's cut."""
        return plan_by_cut(items, profile, facts)

    def estimate(self, job: SummaryJob, profile: Profile, limit: int | None) -> CallEstimate:
        """Return no calls: nobody is asked."""
        return CallEstimate(calls=0, input_tokens=0, output_tokens=0)

    def run(
        self,
        job: SummaryJob,
        profile: Profile,
        summarizer: Summarizer,
        on_step: Callable[[Step], None],
    ) -> Outcome:
        """Return the digest; it takes the place of the one before it, and of nothing else."""
        return make_digest(
            job.items,
            earlier=job.digest,
            counter=job.counter,
            max_tokens=profile.digest_tokens,
            sent_again=job.sent_again,
            files=job.files,
            tool_actions=profile.tool_actions,
            on_step=on_step,
        )


def _step(request: SummaryRequest, text: str, **sizes: Any) -> Step:
    """Return the fallback digest as a run's only step, made without a call."""
    return Step(
        key=1,
        parent=None,
        kind=KIND,
        depth=0,
        order=1,
        first=request.items[0].id,
        last=request.items[-1].id,
        message_count=len(request.items),
        outcome="truncated",
        is_call=False,
        output=text,
        request=request,
        **sizes,
    )


def _text(lines: list[str], counter: TokenCounter, room: int, *, is_whole: bool) -> str:
    """Return head and lines; where not even their beginnings have room, the newest of them.

    `is_whole` says whether none was left out before.
    """
    while True:
        head = _head(room, counter, is_whole=is_whole)
        left = room - counter.count(BETWEEN_BLOCKS.join([*head, ""]))
        shortened = _shortened(lines, counter, left)
        if shortened or len(lines) <= 1:
            return BETWEEN_BLOCKS.join([*head, *shortened])
        lines, is_whole = lines[max(1, len(lines) // 8) :], False


def _head(room: int, counter: TokenCounter, *, is_whole: bool) -> list[str]:
    """Return what stands first: what this is, in few words where there is little room."""
    notice = _NOTICE if counter.count(_NOTICE) * 4 <= room else _SHORT
    return [notice] if is_whole or notice == _SHORT else [notice, _LEFT_OUT]


def _lines_of(text: str) -> list[str]:
    """Return the lines of a fallback digest; any other text is one line."""
    if not text.startswith(_HEAD):
        return [text] if text else []
    return [line for line in text.split(BETWEEN_BLOCKS) if not line.startswith(_HEAD)]


def _line(item: Item) -> str:
    """Return a message as a line of the fallback digest: who, what, and what was called."""
    calls = [f"{call.name} {call.arguments}" for call in item.tool_calls]
    called = f" (calls {'; '.join(calls)})" if calls else ""
    said = f"{item.tool_name or item.role}: {item.text}{called}"
    return said.replace(BETWEEN_BLOCKS, "\n")


def _shortened(texts: list[str], counter: TokenCounter, tokens: int) -> list[str]:
    """Return the texts cut to the same length, the longest with which all fit; [] if none does."""
    longest = max(map(len, texts), default=0)
    low, high = 0, min(longest, max(0, tokens) * LONGEST_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        joined = BETWEEN_BLOCKS.join(_cut(texts, middle))
        # What is clearly too long is not counted.
        if len(joined) <= tokens * LONGEST_TOKEN and counter.count(joined) < tokens:
            low = middle
        else:
            high = middle - 1
    return _cut(texts, low) if low >= min(SHORTEST_CHARS, longest) else []


def _cut(texts: list[str], length: int) -> list[str]:
    return [text if len(text) <= length else text[:length].rstrip() + _CUT for text in texts]

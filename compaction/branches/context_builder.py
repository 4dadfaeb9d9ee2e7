"""What a request sends of a branch: system messages, memories, summaries, and the messages that
stay verbatim.

A request that cannot fit is seen before it is sent, and made smaller first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

from chatapp.context.assembly import Context, HistoryPart, Shortened, assemble, showing_part
from chatapp.messages.inline_files import without_inline_files
from chatapp.messages.wire import WireMessage, as_sent, texts_of, with_texts
from chatapp.models import Message
from compaction.branches.carriers import carried_tokens, sent_form
from compaction.branches.made_of import left_out_of, words_of
from compaction.branches.pins import PINS_OVER_SHARE, excess_now
from compaction.branches.planning import unless_prevented
from compaction.branches.snapshot import BranchSnapshot
from compaction.branches.tail import behind_cursor
from compaction.convert import to_item
from compaction.engine.policy.groups import groups
from compaction.engine.policy.reasons import Reason
from compaction.engine.protocols import Rendering, SentSummary
from compaction.engine.registry import RENDERINGS
from compaction.engine.rendering import FALLBACK_RENDERING, rendered
from compaction.engine.tool_results import (
    ResultRoom,
    Route,
    allot,
    cut_blocks,
    least_of,
    limits_of,
    precheck,
    room_of,
    sent_marker,
)
from compaction.engine.types import Decision
from compaction.selectors import anchor_before, is_final_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCut:
    """What more is left out of one request; nothing of it changes what is stored.

    `groups`: only that many of the newest groups, with the newest summary. `results_together`: all
    tool results share what one may have. `window`: the tokens that tool results are measured by,
    where a server named a smaller limit than the model's window. `refused`: the request before was
    refused as too large.
    """

    groups: int | None = None
    results_together: bool = False
    window: int | None = None
    refused: bool = False

    @property
    def trusts_room(self) -> bool:
        """Whether what seems to fit will: who refuses without a number may take far less."""
        return self.window is not None or not self.refused


PLAIN = RequestCut()
_PLAIN_CONTEXT = "plain_context"
# The mark of a request that holds only a part of what is to be sent.
PART_OF_IT = "part"


def kept_of(
    snapshot: BranchSnapshot, *, groups: int | None = None
) -> tuple[list[Message], list[Message]]:
    """Return what is sent verbatim: the system messages at the front, then all the rest."""
    cursor, behind = snapshot.state.cursor, behind_cursor(snapshot)
    rows = behind.rows
    question = question_in(rows) if groups is not None else None
    if groups is not None:
        rows = newest_groups(rows, groups)
    earlier = [row for row in snapshot.pinned if not row.is_pinned_system]
    # A limit of the history is meant to hide; the window's is not.
    if snapshot.profile.context_size:
        earlier += behind.pins
    if question is None and cursor and not _ends_earlier(rows):
        question = anchor_before(snapshot.branch, cursor, last=behind.last_covered)
    if question is not None and question not in [*earlier, *rows]:
        earlier = sorted([*earlier, question], key=lambda row: row.position)
    system = [*(row for row in snapshot.pinned if row.is_pinned_system), *behind.system]
    return system, [*earlier, *rows]


def for_their_pin(snapshot: BranchSnapshot) -> set[UUID]:
    """Return the ids of what is sent only because it is pinned; rules are the system's part."""
    limited = behind_cursor(snapshot).pins if snapshot.profile.context_size else []
    return {row.pk for row in (*snapshot.pinned, *limited) if not row.is_pinned_system}


def question_in(rows: Sequence[Message]) -> Message | None:
    """Return the newest question among the rows: it is sent however few groups are."""
    return next((row for row in reversed(rows) if row.is_question), None)


def grouped(rows: list[Message]) -> list[list[Message]]:
    """Return the rows in groups that may not be parted, in order."""
    left = iter(rows)
    return [[next(left) for _ in group.items] for group in groups(list(map(to_item, rows)))]


def newest_groups(rows: list[Message], count: int) -> list[Message]:
    """Return the rows of the newest groups."""
    return [row for group in grouped(rows)[-count:] for row in group]


def context_of(
    snapshot: BranchSnapshot, *, run_id: str | None = None, cut: RequestCut = PLAIN
) -> Context:
    """Return what the next request sends; `cut` says what more is left out of it.

    The plain one is put together once a snapshot.
    """
    if cut != PLAIN:
        return replace(_assembled(snapshot, cut), run_id=run_id)
    plain: Context | None = snapshot.derived.get(_PLAIN_CONTEXT)
    if plain is None:
        plain = snapshot.derived[_PLAIN_CONTEXT] = _assembled(snapshot, cut)
    return replace(plain, run_id=run_id)


def _assembled(snapshot: BranchSnapshot, cut: RequestCut) -> Context:
    system, kept = kept_of(snapshot, groups=cut.groups)
    summaries, tokens = snapshot.sent_forms, snapshot.sent_summary_tokens
    summary_rows = snapshot.summaries
    if cut.groups is not None and snapshot.summaries:
        # The newest has taken in those before it.
        summary_rows = snapshot.newest
        summaries = list(map(sent_form, summary_rows))
        tokens = sum(row.summary_tokens for row in summary_rows)
        tokens += carried_tokens(snapshot.profile, snapshot.model, summaries)
    rendering, carriers = _rendered(snapshot, summaries)
    part = HistoryPart(
        system=system,
        memories=snapshot.memories.text,
        memory_tokens=snapshot.memories.tokens,
        memories_left_out=snapshot.memories.left_out,
        summaries=carriers,
        summary_tokens=tokens,
        merge_system=rendering.merges_system,
        kept=kept,
        shortened=shortened(snapshot, kept, cut),
        pinned=for_their_pin(snapshot),
    )
    context = assemble(snapshot.session, part, model=snapshot.model, reserve=snapshot.reserve)
    if cut.groups is None:
        context = showing_part(context, behind_cursor(snapshot).not_shown)
    if excess := excess_now(snapshot, context.account.pinned):
        snapshot.failed[PINS_OVER_SHARE] = excess
    is_halved = cut.groups is not None
    return replace(
        context,
        mark=PART_OF_IT if is_halved else snapshot.request_mark,
        made_of=words_of(
            snapshot, kept, summaries=summary_rows, cut=part.shortened, pins=part.pinned
        ),
        left_out=left_out_of(snapshot, behind_cursor(snapshot), kept, is_halved=is_halved),
    )


def _rendered(
    snapshot: BranchSnapshot, summaries: list[SentSummary]
) -> tuple[Rendering, list[WireMessage]]:
    """Return the messages that carry the summaries, and the rendering that made them.

    Where a plug-in's fails, it is the built-in one, and what was wrong is a problem of the branch.
    """
    name = snapshot.profile.rendering
    rendering = RENDERINGS.get(name)
    try:
        carriers = rendered(rendering, summaries, snapshot.profile)
        return rendering, cast(list[WireMessage], carriers)
    except ValueError as error:
        snapshot.failed["rendering_failed"] = (
            f"The rendering {name!r} {error}. The summaries were sent as system messages instead."
        )
    carriers = FALLBACK_RENDERING.messages([one.text for one in summaries])
    return FALLBACK_RENDERING, cast(list[WireMessage], carriers)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutResult:
    """A tool result that shrinks: its new content, and its characters before and after."""

    row: Message
    content: Any
    before: int
    after: int


def cut_results(
    snapshot: BranchSnapshot, kept: list[Message], cut: RequestCut
) -> Iterator[CutResult]:
    """Yield the tool results that are too long as they would be cut."""
    window = cut.window or snapshot.model.context_window
    keep = limits_of(snapshot.profile).min_keep(window)
    for row, limit in allotted(snapshot, kept, cut):
        content = as_sent(row.stored_wire())["content"]
        texts = texts_of(content)
        after = cut_blocks(texts, limit, min_keep=least_of(limit, keep), marker=sent_marker)
        sizes = sum(map(len, texts)), sum(map(len, after))
        if sizes[1] < sizes[0]:
            found = with_texts(content, after)
            yield CutResult(row=row, content=found, before=sizes[0], after=sizes[1])


def shortened(
    snapshot: BranchSnapshot, kept: list[Message], cut: RequestCut
) -> Mapping[UUID, Shortened]:
    """Return what is sent in the place of tool results that are too long."""
    return {
        one.row.pk: Shortened(
            content=one.content, tokens=-(-one.row.tokens * one.after // one.before)
        )
        for one in cut_results(snapshot, kept, cut)
    }


def sizes_as_sent(snapshot: BranchSnapshot, kept: list[Message]) -> dict[UUID, int]:
    """Return the characters of the tool results as a plain request holds them."""
    limits = limits_of(snapshot.profile)
    single = limits.max_chars(snapshot.model.context_window)
    sizes = {row.pk: _size_as_sent(row) for row in kept if row.role == Message.Role.TOOL}
    if snapshot.profile.limit_tool_results:
        sizes = {key: min(size, single) for key, size in sizes.items()}
    return sizes


def _size_as_sent(row: Message) -> int:
    """Return the characters of a tool result, with placeholders for the files inside it."""
    return len(without_inline_files(row.content or ""))


def allotted(
    snapshot: BranchSnapshot, kept: list[Message], cut: RequestCut
) -> list[tuple[Message, int]]:
    """Return the tool results that are too long with the characters each one may have."""
    if not (snapshot.profile.limit_tool_results or cut.results_together):
        return []
    limits, window = limits_of(snapshot.profile), cut.window or snapshot.model.context_window
    results = [row for row in kept if row.role == Message.Role.TOOL]
    sizes = [_size_as_sent(row) for row in results]
    single = limits.max_chars(window)
    together = single if cut.results_together else sum(sizes) + 1
    room = _room_for_results(snapshot, kept, results, window)
    found = allot(
        sizes,
        single=single,
        together=together,
        min_keep=limits.min_keep(window),
        room=room if cut.trusts_room else replace(room, shared=0),
    )
    return [(results[index], limit) for index, limit in found.items()]


def _room_for_results(
    snapshot: BranchSnapshot, kept: list[Message], results: list[Message], window: int
) -> ResultRoom:
    """Return the room of tool results beside the rest and the answer."""
    tokens = sum(row.tokens for row in results)
    # Pinned messages before the cursor are among the fixed ones.
    frame, cursor = snapshot.model.message_frame_tokens, snapshot.state.cursor
    behind = sum(row.tokens + frame for row in kept if row.position > cursor)
    rest = snapshot.fixed_tokens + behind - tokens
    usable = (window - min(snapshot.reserve, window // 2)) / snapshot.model.scale
    characters = sum(map(_size_as_sent, results))
    return room_of(usable=usable, rest=rest, characters=characters, tokens=tokens)


def _ends_earlier(rows: list[Message]) -> bool:
    """Whether the turn that was covered in part is over among these rows.

    That is with its final answer, or with a newer question: the newest one alone is unanswered.
    """
    return any(row.is_question or is_final_answer(row) for row in rows)


_TOGETHER = RequestCut(results_together=True)


def sendable(snapshot: BranchSnapshot, *, run_id: str | None = None) -> Context:
    """Return what the next request sends, its tool results shortened where that makes it fit.

    What only a compaction could help goes out as it is: the server has the last word.
    """
    context = context_of(snapshot, run_id=run_id)
    if route_of(snapshot, context) in (Route.TRUNCATE, Route.COMPACT_THEN_TRUNCATE):
        return context_of(snapshot, run_id=run_id, cut=_TOGETHER)
    return context


def foreseen(snapshot: BranchSnapshot) -> Decision | None:
    """Return the decision to compact before a request that would be refused, or None."""
    route = route_of(snapshot, context_of(snapshot))
    if route not in (Route.COMPACT, Route.COMPACT_THEN_TRUNCATE):
        return None
    return unless_prevented(snapshot, Decision(reason=Reason.PRECHECK))


def route_of(snapshot: BranchSnapshot, context: Context) -> Route:
    """Return what would make a context fit, by our own count; FITS also where nobody can tell."""
    profile, account = snapshot.profile, context.account
    if not (profile.enabled and profile.precheck_margin) or account.window <= 0:
        return Route.FITS

    def ask(reducible: int) -> Route:
        return precheck(
            tokens=math.ceil(account.used * snapshot.model.scale),
            window=account.window,
            reserve=account.reserve,
            reducible_chars=reducible,
            margin=profile.precheck_margin,
        )

    return ask(0) if ask(0) is Route.FITS else ask(_reducible(snapshot))


def _reducible(snapshot: BranchSnapshot) -> int:
    """Return the characters that tool results lose when they share what one may have."""
    _, kept = kept_of(snapshot)
    now = sizes_as_sent(snapshot, kept)
    targets = allotted(snapshot, kept, _TOGETHER)
    return sum(max(0, now[row.pk] - limit) for row, limit in targets)

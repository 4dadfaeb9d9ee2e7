"""What exports of a session say of its summaries, and how an import takes it back.

A file holds the summaries in force on the exported branch, oldest first, with their lines, clauses
and quality. Messages are named by their index among the exported ones (chatapp.extensions), so that
the imported session sends what the exported one does. Runs, drafts and summaries that were taken
back or replaced are not in it, nor what they cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Length
from django.utils import timezone

from chatapp.extensions import ExportPart
from chatapp.messages.wire import CUT_FROM, REPLAY_OF, Cleaner
from chatapp.models import Branch, Message
from chatapp.selectors import counter_of, path_messages
from chatapp.transcript import lock_branches
from compaction.branches.coverage import coverage_of
from compaction.branches.leases import ensure_state, state_of
from compaction.convert import read_items
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.provenance import Origin
from compaction.engine.types import Outcome
from compaction.errors import CompactionError
from compaction.models import (
    CompactionProfile,
    CompactionState,
    SessionSummary,
    SessionSummaryMessage,
    SummaryLine,
    SummaryQuality,
    SummaryUnits,
)
from compaction.models.summaries import status_columns
from compaction.profiles import find_profile, parameters_of, profile_of
from compaction.selectors import chain_of
from compaction.summaries.columns import write_placeholder
from compaction.summaries.fidelity import store_fidelity
from compaction.summaries.transferred import (
    MOST_NUMBER,
    ImportedMessages,
    TransferredSummary,
    UnsoundError,
    read_summary,
)
from compaction.summaries.transferred_history import with_history, written_history

ROWS_AT_ONCE = 1000
# Of one row: id, length of the text, whether it was cut, and the row that it repeats.
_Text = tuple[UUID, int, bool, UUID | None]
_NO_PIECE: Sequence[Any] = (None, 0, 0)
# Written as they stand in the row, and read back by transferred.py.
_COLUMNS = (
    "kind",
    "status",
    "format_version",
    "trigger",
    "reason",
    "model",
    "prompt_version",
    "temperature",
    "target_summary_tokens",
    "keep_last_n",
    "approx_tokens",
    "tokens_before",
    "tokens_after",
    "compression_ratio",
    "truncated",
    "is_digest",
    "metadata",
    "instructions",
    "files_read",
    "files_modified",
    "files_created",
    "from_hook",
    "details",
    "files_deleted",
)
_QUALITY_COLUMNS = (
    "version",
    "score",
    "yardstick",
    "cumulative",
    "rejected",
    "hindsight",
    "hindsight_facts",
    "verdict",
    "verdict_note",
    "figures",
    "facts",
    "ignored",
)


class ProfilePart(ExportPart):
    """The profile that a session names for itself; where nobody here has it, the default stays."""

    def written(self, branch: Branch, messages: Sequence[UUID]) -> Any:
        """Return the profile's name."""
        return state_of(branch).profile or None

    def take_back(self, branch: Branch, messages: Sequence[UUID], part: Any) -> Iterable[str]:
        """Give the branch the profile of that name."""
        try:
            # Names that no database stores are nobody's.
            is_name = isinstance(part, str) and part and Cleaner().text(part) == part
            found = find_profile(part) if is_name else None
        except CompactionError:
            found = None
        if found is None:
            return ["The profile was left out: there is none of that name here."]
        state = ensure_state(branch)
        CompactionState.objects.filter(pk=state.pk).update(profile=found.name)
        return ()


class SummariesPart(ExportPart):
    """The summaries that a branch's history rests on, with what stands beside them."""

    def written(self, branch: Branch, messages: Sequence[UUID]) -> Any:
        """Return the summaries up to the cursor, oldest first; None without one."""
        cursor = state_of(branch).cursor
        chain = chain_of(branch, through=cursor)[::-1] if cursor else []
        if not chain:
            return None
        places = _Places.of(branch, messages)
        by_end = {summary.covers_through: index for index, summary in enumerate(chain)}
        indexes = _by_position(branch, places) if any(row.abridged_entries for row in chain) else {}
        return [
            _written(summary, places, by_end) | written_history(summary, indexes)
            for summary in chain
        ]

    def take_back(self, branch: Branch, messages: Sequence[UUID], part: Any) -> Iterable[str]:
        """Store the summaries up to the first that does not fit the messages.

        Those behind it rest on it: without it, their messages are sent verbatim, too.
        """
        if not isinstance(part, list):
            return ["The summaries were left out: they are no list."]
        lock_branches(branch.session_id)
        known = _imported(branch, messages)
        stored: list[SessionSummary] = []
        after, left_out = -1, []
        for number, value in enumerate(part):
            try:
                found = read_summary(value, known, after=after, earlier=number)
                found = with_history(found, value, known)
            except UnsoundError as error:
                left_out = [_left_out(number, len(part), str(error))]
                break
            stored.append(_store(branch, found, known, stored))
            after = found.linked[-1]
        if stored:
            _move_cursor(branch, stored[-1])
        return left_out


def _left_out(number: int, count: int, why: str) -> str:
    behind = count - number - 1
    more = f", with the {behind:,} behind it" if behind else ""
    return (
        f"Summary {number + 1} was left out{more}: {why}. "
        "The messages that it stood for are sent verbatim."
    )


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where messages stand in the file; also those that the exported ones repeat (a replay's).

    `exact` are those that have the text which an import stores again, so that offsets hold.
    `lengths` are those of texts that the guard at storing has cut.
    """

    indexes: Mapping[UUID, int]
    exact: frozenset[UUID]
    lengths: Mapping[int, int]

    @classmethod
    def of(cls, branch: Branch, messages: Sequence[UUID]) -> _Places:
        """Return the places for a branch's messages, exported in this order."""
        indexes = {pk: index for index, pk in enumerate(messages)}
        sizes: dict[UUID, int] = {}
        # Of each message the row that came in: what a replay cut is whole in the file.
        first: dict[int, tuple[int, bool]] = {}
        level = _texts(path_messages(branch))
        while level:
            repeated: dict[UUID, int] = {}
            for pk, size, is_cut, repeats in level:
                if pk not in indexes:  # it came in meanwhile
                    continue
                sizes[pk] = size
                first[indexes[pk]] = size, is_cut
                if repeats is not None:
                    repeated[repeats] = indexes[pk]
            indexes |= repeated
            level = _texts_of(list(repeated))
        return cls(
            indexes=indexes,
            exact=frozenset(pk for pk, size in sizes.items() if size == first[indexes[pk]][0]),
            lengths={index: size for index, (size, is_cut) in first.items() if is_cut},
        )

    def piece(self, message: UUID, start: int, end: int) -> list[int] | None:
        """Return a piece of a message for the file; None where it is no exported message."""
        index = self.indexes.get(message)
        if index is None:
            return None
        return [index, start, end] if message in self.exact else [index, 0, 0]


def _by_position(branch: Branch, places: _Places) -> dict[int, int]:
    """Return where the branch's messages stand in the file, by their positions."""
    rows = path_messages(branch).values_list("position", "pk")
    return {position: places.indexes[pk] for position, pk in rows if pk in places.indexes}


def _texts_of(ids: Sequence[UUID]) -> list[_Text]:
    parts = (ids[start : start + ROWS_AT_ONCE] for start in range(0, len(ids), ROWS_AT_ONCE))
    return [one for part in parts for one in _texts(Message.objects.filter(pk__in=part))]


def _texts(rows: QuerySet[Message]) -> list[_Text]:
    keys = (f"metadata__{CUT_FROM}", f"metadata__{REPLAY_OF}")
    found = rows.order_by().values_list("pk", Length("content"), *keys)
    return [
        (pk, size or 0, cut_from is not None, None if repeats is None else UUID(repeats))
        for pk, size, cut_from, repeats in found
    ]


def _written(summary: SessionSummary, places: _Places, by_end: Mapping[int, int]) -> dict[str, Any]:
    """Return one summary; `by_end` leads from where summaries end to their place in the list."""
    linked = SessionSummaryMessage.objects.filter(summary=summary).values_list("message", flat=True)
    indexes = sorted({places.indexes[pk] for pk in linked if pk in places.indexes})
    through = indexes[-1] if indexes else -1
    before, profile = summary.previous, summary.profile
    kept = SummaryUnits.objects.filter(pk=summary.pk).first()
    lines = _written_lines(summary, places)
    quality = SummaryQuality.objects.filter(pk=summary.pk).first()
    return {
        "text": summary.summary_text,
        **{column: getattr(summary, column) for column in _COLUMNS},
        "created_at": summary.created_at.isoformat(),
        "profile": profile and {"name": profile.name, "version": profile.version},
        # The newest version of what was continued covers the same.
        "previous": before and by_end.get(before.covers_through),
        "covers": [indexes[0], indexes[-1]] if indexes else [],
        "messages": indexes,
        "cut": {str(i): size for i, size in places.lengths.items() if i <= through},
        "lines": lines,
        "units": [_written_unit(row, places) for row in kept.units] if kept else [],
        "named_weight": kept and kept.named_weight,
        "quality": quality and _written_quality(quality, places),
    }


def _written_lines(summary: SessionSummary, places: _Places) -> list[dict[str, Any]]:
    rows = SummaryLine.objects.filter(summary=summary).order_by("number", "pk")
    lines = []
    for _, group in groupby(rows, key=lambda row: row.number):
        pieces = list(group)
        found = [
            places.piece(row.message_id, row.message_start, row.message_end)
            for row in pieces
            if row.message_id is not None
        ]
        sources = [piece for piece in found if piece is not None]
        line = pieces[0]
        origin = line.origin if sources else Origin.NONE.value
        lines.append({"start": line.start, "end": line.end, "origin": origin, "sources": sources})
    return lines


def _written_unit(row: Sequence[Any], places: _Places) -> list[Any]:
    text, kind, speaker, position, message, start, end, *rest = row
    piece = places.piece(UUID(message), start, end) if message else None
    return [text, kind, speaker, position, *(piece or _NO_PIECE), *rest]


def _written_quality(quality: SummaryQuality, places: _Places) -> dict[str, Any]:
    """Return all but who gave the verdict: users of one place are no users of another."""
    moments = {
        name: moment and moment.isoformat()
        for name in ("hindsight_at", "verdict_at", "created_at")
        for moment in (getattr(quality, name),)
    }
    columns = {column: getattr(quality, column) for column in _QUALITY_COLUMNS}
    return columns | moments | {"lost": [_written_fact(fact, places) for fact in quality.lost]}


def _written_fact(fact: Mapping[str, Any], places: _Places) -> dict[str, Any]:
    message = fact.get("message")
    piece = places.piece(UUID(message), fact["start"], fact["end"]) if message else None
    return dict(fact) | dict(zip(("message", "start", "end"), piece or _NO_PIECE, strict=True))


# --- taking back ----------------------------------------------------------------------------------


def _imported(branch: Branch, messages: Sequence[UUID]) -> ImportedMessages:
    """Return the branch's messages as summaries have to fit them."""
    rows = path_messages(branch)
    # Offsets of a file are those of texts as they are stored.
    items = read_items(rows, as_stored=True)
    cut_from = f"metadata__{CUT_FROM}"
    flags = list(rows.values_list("pk", "pinned", cut_from))
    if [pk for pk, *_ in flags] != list(messages):
        raise ValueError("The imported messages are not those of the branch.")
    return ImportedMessages(
        ids=messages,
        items=items,
        cuts=frozenset([*legal_cuts(items), len(items)]),
        pinned=frozenset(index for index, (_, pinned, _) in enumerate(flags) if pinned),
        lengths={
            index: len(items[index].text)
            for index, (*_, whole) in enumerate(flags)
            if whole is not None
        },
        hides_secrets=parameters_of(profile_of(state_of(branch))).redact_secrets,
    )


def _store(
    branch: Branch,
    found: TransferredSummary,
    known: ImportedMessages,
    earlier: Sequence[SessionSummary],
) -> SessionSummary:
    """Store a summary with links, clauses, lines, quality and placeholder."""
    first, last = (known.ids[found.linked[place]] for place in (0, -1))
    ends = Message.objects.only("position", "created_at").in_bulk([first, last])
    columns = dict(found.columns)
    sent = SessionSummary(**columns).sent_text
    tokens = counter_of(branch.session).count(sent)
    summary = SessionSummary.objects.create(
        session_id=branch.session_id,
        branch=branch,
        first_message_id=first,
        last_message_id=last,
        first_message_created_at=ends[first].created_at,
        last_message_created_at=ends[last].created_at,
        covers_from=ends[first].position,
        covers_through=ends[last].position,
        message_count=len(found.linked),
        # Counted here: triggers look at it.
        summary_tokens=min(tokens, MOST_NUMBER),
        previous=None if found.previous is None else earlier[found.previous],
        profile=_profile(found.profile),
        # Here it counts since now, whenever it was made.
        **columns | status_columns(SessionSummary.Status.ACTIVE),
    )
    SessionSummaryMessage.objects.bulk_create(
        (SessionSummaryMessage(summary=summary, message_id=known.ids[i]) for i in found.linked),
        ROWS_AT_ONCE,
    )
    store_fidelity(summary, _outcome(found))
    if found.named_weight is not None:
        kept = SummaryUnits.objects.filter(pk=summary.pk)
        kept.update(named_weight=found.named_weight)
    if found.judged:
        SummaryQuality.objects.filter(pk=summary.pk).update(**found.judged)
    write_placeholder(branch, summary)
    return summary


def _outcome(found: TransferredSummary) -> Outcome:
    """Return what stands beside a summary as a strategy would hand it over."""
    return Outcome(
        text=str(found.columns["summary_text"]),
        items=(),
        chunk_count=0,
        max_depth=0,
        truncated=False,
        input_tokens=0,
        output_tokens=0,
        units=found.units,
        lines=found.lines,
        quality=found.quality,
    )


def _profile(named: tuple[str, int] | None) -> CompactionProfile | None:
    """Return the profile of that name and version; what else has the name made no such summary."""
    if named is None:
        return None
    name, version = named
    return CompactionProfile.objects.filter(name=name, version=version).first()


def _move_cursor(branch: Branch, newest: SessionSummary) -> None:
    """Have the branch begin behind its summaries, as after a run."""
    state, reach = ensure_state(branch), coverage_of(branch)
    CompactionState.objects.filter(pk=state.pk).update(
        **reach.as_columns(),
        last_consolidated_at=min(newest.created_at, timezone.now()),
    )

"""The stretches of a conversation in its order: what is summarised by what, and what is sent."""

from __future__ import annotations

from dataclasses import dataclass

from chatapp import formatting
from chatapp.models import POSITION_STEP
from compaction import vocabulary
from compaction.admin.session.standing import SUMMARIES_DRAWN, Standing
from compaction.models import SessionSummary

KIND_NAMES = {
    "older": "Older summaries, taken together",
    "summary": "Summarised",
    "summary-b": "Summarised (the next one)",
    "archive": "Archive: stored unsummarised",
    "rules": "Rules: always sent first",
    "bare": "Covered without a summary row",
    "left-out": "Not sent (limit of messages)",
    "kept": "Kept: sent verbatim",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Positions from `start` through `end`; `said` tells all of it in words."""

    kind: str
    start: int
    end: int
    said: str
    label: str = ""
    summary: SessionSummary | None = None

    @property
    def name(self) -> str:
        """The part of the drawings that has its colour and pattern."""
        return "summary-older" if self.kind == "older" else self.kind


def stretches_of(standing: Standing) -> list[Stretch]:
    """Return the stretches from the first message to the newest; none where nothing is stored."""
    rows = standing.summaries
    older, rows = rows[:-SUMMARIES_DRAWN], rows[-SUMMARIES_DRAWN:]
    found: list[Stretch] = []
    begin = POSITION_STEP
    if older:
        found.append(_older(standing, rows[0]))
        begin = rows[0].covers_from
    sent = {row.pk for row in standing.snapshot.summaries}
    for number, row in enumerate(rows):
        if _steps(begin, row.covers_from - 1) >= 1:
            found.append(_without_summary(standing, begin, row.covers_from - 1))
        found.append(_summary(row, even=number % 2 == 0, is_sent=row.pk in sent))
        begin = row.covers_through + 1
    if _steps(begin, standing.cursor) >= 1:
        found.append(_without_summary(standing, begin, standing.cursor))
    return found + _behind_the_cursor(standing)


def _behind_the_cursor(standing: Standing) -> list[Stretch]:
    begin, head = standing.cursor + 1, standing.branch.head_position
    found = []
    if standing.sent_from > begin:
        end = standing.sent_from - 1
        found.append(
            Stretch(
                kind="left-out",
                start=begin,
                end=end,
                label="not sent",
                said=f"Not sent, because the profile has a {standing.limit_words}: "
                f"{_places(begin, end)}",
            )
        )
    if head >= standing.sent_from:
        found.append(
            Stretch(
                kind="kept",
                start=standing.sent_from,
                end=head,
                label="kept",
                said=f"Kept, sent verbatim: {_places(standing.sent_from, head)}",
            )
        )
    return found


def _older(standing: Standing, first: SessionSummary) -> Stretch:
    end = first.covers_from - 1
    return Stretch(
        kind="older",
        start=POSITION_STEP,
        end=end,
        label="older summaries",
        said=f"Summarised by summaries older than the newest {SUMMARIES_DRAWN}, drawn as one: "
        f"{_places(POSITION_STEP, end)}",
    )


def _summary(row: SessionSummary, *, even: bool, is_sent: bool) -> Stretch:
    sends = "its text is sent" if is_sent else "newer summaries have taken it in"
    what = "Archive" if row.archived else "Summary"
    name = formatting.short_id(row.pk)
    kind = "summary" if even else "summary-b"
    return Stretch(
        kind="archive" if row.archived else kind,
        start=row.covers_from,
        end=row.covers_through,
        label="archive" if row.archived else name,
        summary=row,
        said=f"{what} {name} of {row.message_count:,} messages, "
        f"{_places(row.covers_from, row.covers_through)}; "
        f"{formatting.before_after(row.approx_tokens, row.summary_tokens)} tokens; "
        f"{vocabulary.reason_words(row.reason)}; {sends}",
    )


def _without_summary(standing: Standing, start: int, end: int) -> Stretch:
    """Return a stretch before the cursor that no summary covers: rules, or an import's past."""
    rules = sum(row.is_rule and start <= row.position <= end for row in standing.pinned)
    if rules >= _steps(start, end):
        said = f"Rules of the conversation, always sent first: {_places(start, end)}"
        return Stretch(kind="rules", start=start, end=end, label="rules", said=said)
    said = f"Covered by an imported placeholder without a summary row: {_places(start, end)}"
    return Stretch(kind="bare", start=start, end=end, label="imported", said=said)


def _steps(start: int, end: int) -> int:
    """Return how many whole messages may stand from one position through another."""
    return end // POSITION_STEP - (start - 1) // POSITION_STEP


def _places(start: int, end: int) -> str:
    """Return positions in words; a start just behind a message is that of the next one."""
    first = -(-start // POSITION_STEP)
    last = max(first, end // POSITION_STEP)
    return f"position {first:,}" if first == last else f"positions {first:,} – {last:,}"


def forks_of(standing: Standing) -> list[tuple[int, str]]:
    """Return where the branch leaves each of its ancestors: (position, sentence)."""
    return [
        (
            stretch.through,
            f"Forked from branch {formatting.short_id(stretch.branch_id)} "
            f"behind position {formatting.place(stretch.through)}",
        )
        for stretch in standing.stretches
        if stretch.through is not None
    ]

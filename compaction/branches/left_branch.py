"""What a branch has that another one does not: read from its end on, as far as a summary takes it.

No more is read than the budget lets in, however long the branch is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from chatapp.context.assembly import text_tokens
from chatapp.models import Branch, Message
from chatapp.selectors import rows_before, shared_position, without_pinned_system
from compaction.branches.snapshot import BranchSnapshot
from compaction.convert import summary_item, to_item
from compaction.engine.strategies.branch_summary import (
    BranchEntry,
    entries_within,
    reading_budget,
)
from compaction.engine.types import Files
from compaction.models import SessionSummary
from compaction.selectors import branch_summaries_of, id_named, summaries_of

ROWS_AT_ONCE = 64
_FILES = ("files_read", "files_modified", "files_created", "files_deleted")


@dataclass(frozen=True, kw_only=True)
class LeftBranch:
    """The stretch of a branch from where another one leaves its path up to its last row."""

    snapshot: BranchSnapshot
    new: Branch

    @cached_property
    def shared_through(self) -> int:
        """The last position that both paths hold."""
        return shared_position(self.snapshot.branch, self.new)

    @cached_property
    def entries(self) -> list[BranchEntry]:
        """What is summarised of it, in order; nothing where nothing was said there."""
        model, profile = self.snapshot.model, self.snapshot.profile
        budget = reading_budget(model.context_window, profile.branch_reserve_tokens)
        return entries_within(self._newest_first(), budget)

    @cached_property
    def leaf(self) -> Message | None:
        """The last message of the branch."""
        return last_message(self.snapshot.branch)

    @cached_property
    def earlier_files(self) -> list[Files]:
        """The files that summaries in the stretch name, the older ones first.

        What a hook wrote beside its summary is its own.
        """
        old = self.snapshot.branch
        compactions = summaries_of(old).filter(covers_through__gt=self.shared_through)
        shared = branch_summaries_of(self.new).values_list("pk", flat=True)
        of_branches = branch_summaries_of(old).exclude(pk__in=[*shared])
        rows = [
            row
            for found in (compactions, of_branches)
            for row in found.filter(from_hook=False).values_list("created_at", *_FILES)
        ]
        return [_files(*paths) for _, *paths in sorted(rows, key=lambda row: row[0])]

    def _newest_first(self) -> Iterator[BranchEntry]:
        end: int | None = None
        rows = without_pinned_system(Message.objects.defer("usage", "response_id"))
        while True:
            start = self.shared_through + 1
            page = rows_before(self.snapshot.branch, rows, most=ROWS_AT_ONCE, end=end, start=start)
            summaries = self._summaries(page)
            for row in reversed(page):
                if row.is_spoken:
                    yield BranchEntry(item=to_item(row), is_summary=row.carries_summary)
                elif entry := self._of_placeholder(row, summaries):
                    yield entry
            if len(page) < ROWS_AT_ONCE:
                return
            end = page[0].position

    def _summaries(self, page: list[Message]) -> Mapping[str, int]:
        """Return the tokens of the summaries that count, by the ids that placeholders name."""
        named = {row.metadata.get("summary_id") for row in page if not row.is_spoken} - {None}
        known = [key for key in map(id_named, named) if key is not None]
        rows = SessionSummary.objects.filter(pk__in=known, status=SessionSummary.Status.ACTIVE)
        return {str(pk): tokens for pk, tokens in rows.values_list("pk", "summary_tokens")}

    def _of_placeholder(self, row: Message, summaries: Mapping[str, int]) -> BranchEntry | None:
        """Return the summary that a placeholder marks; None for one that does not count."""
        named = row.metadata.get("summary_id")
        if not row.summary or (named and named not in summaries):
            return None
        tokens = summaries[named] if named else text_tokens(self.snapshot.model, row.summary)
        return BranchEntry(item=summary_item(row, tokens=tokens), is_summary=True)


def last_message(branch: Branch) -> Message | None:
    """Return the newest message or note of a branch's path."""
    rows = Message.objects.filter(kind__in=Message.SPOKEN)
    return next(iter(rows_before(branch, rows, most=1)), None)


def _files(read: list[str], modified: list[str], created: list[str], deleted: list[str]) -> Files:
    return Files(
        read=tuple(read), modified=tuple(modified), created=tuple(created), deleted=tuple(deleted)
    )

"""What a summary's columns and fields say."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html

from chatapp import formatting
from chatapp.admin import cells
from chatapp.formatting import when
from compaction import vocabulary
from compaction.admin import badges
from compaction.models import SessionSummary


class SummaryCells:
    """The cells of the list and of a summary's page; everything stored is escaped."""

    @admin.display(description="Id")
    def short_id(self, summary: SessionSummary) -> str:
        """Return the id's beginning."""
        return formatting.short_id(summary.pk)

    @admin.display(description="Session")
    def in_session(self, summary: SessionSummary) -> str:
        """Return a link to the session."""
        return cells.session_link(summary.session)

    @admin.display(description="Status")
    def standing(self, summary: SessionSummary) -> str:
        """Return whether it counts."""
        return badges.summary_status(summary)

    @admin.display(description="Reason")
    def why(self, summary: SessionSummary) -> str:
        """Return the exact rule in words."""
        return vocabulary.reason_words(summary.reason)

    @admin.display(description="Started by")
    def started_by(self, summary: SessionSummary) -> str:
        """Return who or what started it: document 002's trigger in words."""
        return vocabulary.trigger_words(summary.trigger)

    @admin.display(description="Messages")
    def sources(self, summary: SessionSummary) -> str:
        """Return how many messages the summariser received."""
        return formatting.number(summary.message_count)

    @admin.display(description="Tokens before → after")
    def token_change(self, summary: SessionSummary) -> str:
        """Return the next request's size before and after."""
        return formatting.before_after(summary.tokens_before, summary.tokens_after)

    @admin.display(description="Ratio", ordering="compression_ratio")
    def ratio(self, summary: SessionSummary) -> str:
        """Return the summary's size as a part of its input."""
        ratio = formatting.percent(summary.compression_ratio)
        if not summary.truncated:
            return ratio
        return format_html("{} {}", ratio, badges.truncated_words(True))

    @admin.display(description="Truncated")
    def was_truncated(self, summary: SessionSummary) -> str:
        """Return whether text had to be left out of it."""
        return badges.truncated_words(summary.truncated)

    @admin.display(description="Cost")
    def cost_shown(self, summary: SessionSummary) -> str:
        """Return what its run's calls cost."""
        return formatting.money(summary.cost)

    @admin.display(description="Summary")
    def summary_size(self, summary: SessionSummary) -> str:
        """Return tokens of the text and of what it was made from."""
        return f"{summary.summary_tokens:,} tokens, from about {summary.approx_tokens:,}"

    @admin.display(description="Run")
    def from_run(self, summary: SessionSummary) -> str:
        """Return a link to the run that made it, where the tree of its calls stands."""
        return cells.row_link(summary.run)

    @admin.display(description="Took")
    def took(self, summary: SessionSummary) -> str:
        """Return how long its run worked."""
        return vocabulary.seconds(summary.run) if summary.run else "—"

    @admin.display(description="Text")
    def text(self, summary: SessionSummary) -> str:
        """Return the text that is sent."""
        return cells.stored_text(summary.summary_text)

    @admin.display(description="Files")
    def files(self, summary: SessionSummary) -> str:
        """Return the files that tool calls read and modified."""
        lines = [f"read      {name}" for name in summary.files_read]
        lines += [f"modified  {name}" for name in summary.files_modified]
        return cells.stored_text("\n".join(lines))

    @admin.display(description="Positions")
    def range(self, summary: SessionSummary) -> str:
        """Return the positions from and through."""
        return (
            f"{formatting.place(summary.covers_from)} – {formatting.place(summary.covers_through)}"
        )

    @admin.display(description="Written")
    def times(self, summary: SessionSummary) -> str:
        """Return when the first and the last message were written."""
        first, last = summary.first_message_created_at, summary.last_message_created_at
        return f"{when(first)} – {when(last)}"

    @admin.display(description="Continues")
    def continues(self, summary: SessionSummary) -> str:
        """Return the summary whose text was an input of this one."""
        return cells.row_link(summary.previous)

    @admin.display(description="Replaces")
    def replaces(self, summary: SessionSummary) -> str:
        """Return the older version."""
        return cells.row_link(summary.supersedes)

    @admin.display(description="Instructions")
    def instructions_text(self, summary: SessionSummary) -> str:
        """Return what the operator asked for."""
        return cells.stored_text(summary.instructions)

    @admin.display(description="Target tokens")
    def target_tokens(self, summary: SessionSummary) -> str:
        """Return how long the profile asked it to be."""
        return formatting.number(summary.target_summary_tokens)

    @admin.display(description="Prompt")
    def prompt_text(self, summary: SessionSummary) -> str:
        """Return what the summariser was asked."""
        return cells.stored_text(summary.summary_prompt)

    @admin.display(description="Abridged history")
    def abridged_text(self, summary: SessionSummary) -> str:
        """Return the abridged history."""
        return cells.stored_text(summary.abridged)

    @admin.display(description="Metadata")
    def metadata_json(self, summary: SessionSummary) -> str:
        """Return document 002's metadata."""
        return cells.stored_json(summary.metadata)

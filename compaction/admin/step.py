"""Steps: the model calls of all runs."""

from __future__ import annotations

from django.contrib import admin
from django.db.models.functions import Left
from django.http import HttpRequest

from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.filters import one_row
from chatapp.admin.parts import Link, Section
from compaction.admin import tables
from compaction.models import CompactionRun, CompactionStep


@admin.register(CompactionStep)
class CompactionStepAdmin(ReadOnlyAdmin):
    """One call of the summariser; the steps of a run are its bisect tree."""

    list_display = (
        "call",
        "of_run",
        "messages",
        "tokens_in",
        "tokens_out",
        "ended",
        "took",
        "model",
        "error_start",
    )
    list_display_links = ("call",)
    list_select_related = ("run", "first_message", "last_message")
    list_filter = (one_row(CompactionRun, "run"), "outcome")
    # The key counts up: newest first without a second index.
    ordering = ("-id",)
    sortable_by = ("call",)
    list_only = (
        "order",
        "kind",
        "depth",
        "message_count",
        "input_tokens",
        "output_tokens",
        "outcome",
        "duration_ms",
        "model",
        "run__status",
        "first_message__position",
        "last_message__position",
    )
    list_previews = {"error_begin": Left("error", cells.PREVIEW_CHARS)}
    id_paths = ("run",)
    session_path = "run__session"
    search_help_text = "The beginning of a run's id, a session's title or its owner."
    sections = (
        Section(
            title=None,
            fields=("call", "of_run", "parent", "depth", "ended", "error_text"),
            optional={"error_text": "error", "parent": "parent_id"},
        ),
        Section(title="Input", fields=("messages", "tokens_in", "model")),
        Section(title="Answer", fields=("tokens_out", "took", "cost", "output_text")),
        Section(title="Times", fields=("created_at",)),
    )

    @admin.display(description="Call", ordering="order")
    def call(self, step: CompactionStep) -> str:
        """Return order and kind, moved in by depth."""
        return tables.indented(step)

    @admin.display(description="Run")
    def of_run(self, step: CompactionStep) -> str:
        """Return a link to the run."""
        return cells.row_link(step.run, cells.short_id(step.run_id))

    @admin.display(description="Messages")
    def messages(self, step: CompactionStep) -> str:
        """Return the first and last message, and how many."""
        return tables.message_range(step)

    @admin.display(description="Tokens in")
    def tokens_in(self, step: CompactionStep) -> str:
        """Return the input's tokens."""
        return cells.number(step.input_tokens)

    @admin.display(description="Tokens out")
    def tokens_out(self, step: CompactionStep) -> str:
        """Return the answer's tokens."""
        return cells.number(step.output_tokens)

    @admin.display(description="Outcome")
    def ended(self, step: CompactionStep) -> str:
        """Return how the call ended."""
        return tables.outcome(step)

    @admin.display(description="Took")
    def took(self, step: CompactionStep) -> str:
        """Return how long the call took."""
        return f"{step.duration_ms / 1000:.1f} s"

    @admin.display(description="Error")
    def error_start(self, step: CompactionStep) -> str:
        """Return the beginning of the error."""
        return cells.preview(getattr(step, "error_begin", ""))

    @admin.display(description="Error")
    def error_text(self, step: CompactionStep) -> str:
        """Return the error."""
        return cells.stored_text(step.error)

    @admin.display(description="Output")
    def output_text(self, step: CompactionStep) -> str:
        """Return what the model answered."""
        return cells.stored_text(step.output)

    def links_for(self, request: HttpRequest, obj: CompactionStep) -> list[Link]:
        """Return the way to the other steps of the run."""
        url = cells.list_url(CompactionStep, run__id__exact=obj.run_id)
        return [Link(label="Steps of the run", url=url)]

"""Steps of all runs, each with what the summariser was given and what came back."""

from __future__ import annotations

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Left
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.urls import URLPattern, path, reverse

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.filters import one_row
from chatapp.admin.parts import Link, Panel, Section, Table
from compaction import vocabulary
from compaction.admin import tables
from compaction.admin.run.step_input import StepInput
from compaction.admin.run.step_panels import input_panel, output_panel, related_tables, step_links
from compaction.admin.run.streamed import text_download
from compaction.models import CompactionRun, CompactionStep


@admin.register(CompactionStep)
class CompactionStepAdmin(ReadOnlyAdmin):
    """One part or merge of a run; the steps of a run are its bisect tree."""

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
            fields=("call", "of_run", "parent_call", "depth", "ended"),
            optional={"parent_call": "parent_id"},
        ),
        Section(title="Input", fields=("messages", "tokens_in", "model")),
        Section(title="Answer", fields=("tokens_out", "took", "cost_shown")),
        Section(title="Times", fields=("created_at",)),
    )

    class Media:
        css = {"all": ["compaction/run.css"]}

    @admin.display(description="Step", ordering="order")
    def call(self, step: CompactionStep) -> str:
        """Return order and kind, moved in by depth."""
        return tables.indented(step)

    @admin.display(description="Run")
    def of_run(self, step: CompactionStep) -> str:
        """Return a link to the run."""
        return cells.row_link(step.run, formatting.short_id(step.run_id))

    @admin.display(description="Messages")
    def messages(self, step: CompactionStep) -> str:
        """Return the first and last message, and how many."""
        return tables.message_range(step)

    @admin.display(description="Tokens in")
    def tokens_in(self, step: CompactionStep) -> str:
        """Return the input's tokens."""
        return formatting.number(step.input_tokens)

    @admin.display(description="Tokens out")
    def tokens_out(self, step: CompactionStep) -> str:
        """Return the answer's tokens."""
        return formatting.number(step.output_tokens)

    @admin.display(description="Outcome")
    def ended(self, step: CompactionStep) -> str:
        """Return how the step ended."""
        return tables.outcome(step)

    @admin.display(description="Took")
    def took(self, step: CompactionStep) -> str:
        """Return how long the step took."""
        return vocabulary.step_seconds(step)

    @admin.display(description="Cost")
    def cost_shown(self, step: CompactionStep) -> str:
        """Return what the step's model call cost."""
        return formatting.money(step.cost)

    @admin.display(description="Error")
    def error_start(self, step: CompactionStep) -> str:
        """Return the beginning of the error."""
        return cells.preview(getattr(step, "error_begin", ""))

    @admin.display(description="Parent")
    def parent_call(self, step: CompactionStep) -> str:
        """Return the step whose input was too large."""
        return cells.row_link(step.parent)

    # --- page -------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the download of a step's input."""
        view = self.admin_site.admin_view(self.input_view)
        own = path("<int:step_id>/input.txt", view, name="compaction_compactionstep_input")
        return [own, *super().get_urls()]

    def input_view(self, request: HttpRequest, step_id: int) -> StreamingHttpResponse:
        """Send a step's whole input as text, piece by piece."""
        rows = CompactionStep.objects.select_related("run__branch", "first_message", "last_message")
        step = rows.filter(pk=step_id).first()
        if not self.has_view_permission(request, step):
            raise PermissionDenied
        if step is None:
            raise Http404
        name = f"run-{formatting.short_id(step.run_id)}-step-{step.order}-input.txt"
        return text_download(request, StepInput(step).pieces(), filename=name)

    def links_for(self, request: HttpRequest, obj: CompactionStep) -> list[Link]:
        """Return the ways to the run and to the steps around."""
        return step_links(obj)

    def panels_for(self, request: HttpRequest, obj: CompactionStep) -> list[Panel]:
        """Return input and output."""
        url = reverse("admin:compaction_compactionstep_input", args=[obj.pk])
        return [input_panel(obj, url), output_panel(obj)]

    def tables_for(self, request: HttpRequest, obj: CompactionStep) -> list[Table]:
        """Return what a merge joined and what became of the input."""
        return related_tables(obj)

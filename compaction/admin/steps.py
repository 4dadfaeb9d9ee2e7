"""Steps of all runs, each with what the summariser was given and what came back."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Left
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import Cells, column, preview, table_of
from chatapp.admin.toolkit.lists import one_row
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Link, Panel, Section, Table
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, may_see_texts, require_texts
from chatapp.downloads import text_download
from compaction import vocabulary
from compaction.admin import lists
from compaction.admin.run_tree import arrange
from compaction.admin.step_input import StepInput
from compaction.engine.strategies.prompts import BETWEEN_BLOCKS
from compaction.models import CompactionRun, CompactionStep

CHILDREN_SHOWN = 50
# A merge joins what stands shortly before it or far up: so many steps are looked through.
MOST_LOOKED_THROUGH = 2000
RELATED_CELLS: Cells = {
    "Step": lambda step: html.row_link(step, f"{step.order}. {step.kind}"),
    **{
        name: lists.STEP_CELLS[name] for name in ("Outcome", "Messages", "Tokens in", "out", "Time")
    },
}


@admin.register(CompactionStep)
class CompactionStepAdmin(WideList):
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
        "outcome",
        "duration_ms",
        "run__status",
        "first_message__position",
        "last_message__position",
    )
    list_previews = {"error_begin": Left("error", html.PREVIEW_CHARS)}
    id_paths = ("run",)
    session_path = "run__session"
    search_help_text = "The beginning or end of a run's id, a session's title or its owner."
    sections = (
        Section(
            title=None,
            fields=("call", "kind_meaning", "of_run", "parent_call", "depth", "ended"),
            optional={"parent_call": "parent_id"},
        ),
        Section(
            title="Input",
            fields=("messages", "tokens_in", "cached", "model"),
            optional={"cached": "cached_tokens"},
        ),
        Section(title="Answer", fields=("tokens_out", "took", "cost_shown")),
        Section(title="Times", fields=("created_at",)),
    )

    class Media:
        css = {"all": ["compaction/run.css"]}

    call = column("Step", lists.indented, ordering="order")
    kind_meaning = column("What it is", vocabulary.kind_meaning)
    of_run = column("Run", lambda step: html.row_link(step.run, formatting.short_id(step.run_id)))
    messages = column("Messages", lists.message_range)
    tokens_in = column("Tokens in", "input_tokens", formatting.number)
    cached = column(
        "From a prompt cache", lambda step: lists.from_cache(step.cached_tokens, step.input_tokens)
    )
    tokens_out = column("Tokens out", "output_tokens", formatting.number)
    ended = column("Outcome", lists.outcome)
    took = column("Took", vocabulary.step_seconds)
    cost_shown = column("Cost", "cost", formatting.money)
    error_start = preview("Error", "error_begin")
    parent_call = column("Parent", "parent", html.row_link)

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
        require_texts(request)
        if step is None:
            raise Http404
        name = f"run-{formatting.short_id(step.run_id)}-step-{step.order}-input.txt"
        return text_download(request, StepInput(step).pieces(), filename=name)

    def links_for(self, request: HttpRequest, obj: CompactionStep) -> list[Link]:
        """Return the ways to the run and to the steps around."""
        return step_links(obj)

    def panels_for(self, request: HttpRequest, obj: CompactionStep) -> list[Panel]:
        """Return input and output; of both only figures where texts may not be seen."""
        if not may_see_texts(request):
            said = Panel.saying("Output", TEXTS_HIDDEN)
            return [Panel.saying("Input", TEXTS_HIDDEN), replace(said, note=output_note(obj))]
        url = reverse("admin:compaction_compactionstep_input", args=[obj.pk])
        return [input_panel(obj, url), output_panel(obj)]

    def tables_for(self, request: HttpRequest, obj: CompactionStep) -> list[Table]:
        """Return what a merge joined and what became of the input."""
        return related_tables(obj)


def input_panel(step: CompactionStep, download: str) -> Panel:
    """Return what the summariser was given, each text up to cells.SHOWN_CHARS."""
    given = StepInput(step)
    shown, messages_cut = _beginning(given)
    texts = [
        {"title": title, "body": _text(text)}
        for title, text in zip(_titles(step), step.texts, strict=False)
    ]
    long = [text for text in (step.prompt, *step.texts) if len(text) > html.SHOWN_CHARS]
    body = render_to_string(
        "admin/compaction/step_input.html",
        {
            "instruction": _text(step.prompt) if step.prompt else "",
            "no_instruction": _no_instruction(step),
            "attention": _text(step.run.instructions) if step.run.instructions else "",
            "texts": texts,
            "messages_title": "" if given.is_merge else _messages_title(given),
            "messages": _text(shown) if shown else "",
            "warning": _warning(given),
            "is_cut": messages_cut or bool(long),
            "shown": formatting.number(html.SHOWN_CHARS),
            "download": download,
        },
    )
    return Panel(title="Input", body=body)


def output_panel(step: CompactionStep) -> Panel:
    """Return what came back: the text, and why it did not count."""
    error = (
        format_html(
            '<h3>{}</h3><div dir="auto">{}</div>',
            "Note" if step.outcome == CompactionStep.Outcome.OK else "Error",
            _text(step.error),
        )
        if step.error
        else SafeString("")
    )
    output = (
        _text(step.output)
        if step.output
        else format_html('<p class="help">{}</p>', "No text came back.")
    )
    return Panel(
        title="Output",
        note=output_note(step),
        body=format_html('<div class="step-input">{}{}</div>', error, output),
    )


def output_note(step: CompactionStep) -> str:
    """Return how a step ended, with its figures."""
    sign = vocabulary.OUTCOMES[vocabulary.outcome_kind(step)]
    meaning = vocabulary.OUTCOME_MEANINGS[vocabulary.outcome_kind(step)]
    figures = f"{formatting.plural(step.output_tokens, 'token')}, {vocabulary.step_seconds(step)}"
    return f"{sign.capitalize()}: {meaning}. {figures}."


def _text(text: str) -> SafeString:
    """Return a text in its frame; what is too long is cut, and the page says so."""
    return format_html("{}", html.stored_text(text[: html.SHOWN_CHARS]))


def _beginning(given: StepInput) -> tuple[str, bool]:
    """Return the messages up to SHOWN_CHARS, and whether that is not all of them."""
    shown, size = [], 0
    for block in given.message_blocks():
        shown.append(block)
        size += len(block) + len(BETWEEN_BLOCKS)
        if size > html.SHOWN_CHARS:
            break
    text = BETWEEN_BLOCKS.join(shown)
    return text[: html.SHOWN_CHARS], len(text) > html.SHOWN_CHARS or size > html.SHOWN_CHARS


def _titles(step: CompactionStep) -> tuple[str, ...]:
    if step.kind == vocabulary.MERGE:
        return ("First part: the older summary", "Second part: the newer summary")
    if step.kind == vocabulary.UPDATE:
        return ("The summary that it brings up to date",)
    if step.kind in vocabulary.READS_MESSAGES:
        return ("The summary that it continues",)
    return tuple(f"Text {number}" for number in range(1, len(step.texts) + 1))


def _messages_title(given: StepInput) -> str:
    count = given.step.message_count
    return f"{formatting.plural(count, 'message')}, as the summariser got them"


def _no_instruction(step: CompactionStep) -> str:
    if vocabulary.is_forced(step):
        return "No model was asked: the text was shortened here, from the input below."
    if step.kind not in vocabulary.KIND_MEANINGS and not step.model:
        return "No model was asked: the strategy made the text from the input below."
    return "No model was instructed: sentences were chosen from the input below."


def _warning(given: StepInput) -> str:
    if given.is_complete:
        return ""
    found, count = given.message_count, given.step.message_count
    if not found:
        return "The messages cannot be found any more."
    return (
        f"The step was given {formatting.plural(count, 'message')}, and {found:,} are found in its "
        "range now: what counts as a message of the conversation has changed since (pinned, or "
        "deleted)."
    )


def step_links(step: CompactionStep) -> list[Link]:
    """Return the ways to the run and to the steps before, after and above."""
    links = [
        Link.to("Run and its tree", CompactionRun, step.run_id),
        Link.to_list("Steps of the run", CompactionStep, run__id__exact=step.run_id),
    ]
    others = CompactionStep.objects.filter(run=step.run_id)
    before = others.filter(order__lt=step.order).order_by("-order")
    after = others.filter(order__gt=step.order).order_by("order")
    for label, pk in (
        ("← Previous step", before.values_list("pk", flat=True).first()),
        ("Next step →", after.values_list("pk", flat=True).first()),
        ("↑ Parent", step.parent_id),
    ):
        if pk is not None:
            links.append(Link.to(label, CompactionStep, pk))
    return links


def related_tables(step: CompactionStep) -> list[Table]:
    """Return the steps that a merge joined, and those that a step's input went to next."""
    found = []
    if step.kind == vocabulary.MERGE:
        joined = joined_steps(step)
        found.append(
            table_of(
                "The parts that it joined",
                joined,
                RELATED_CELLS,
                empty="They cannot be told any more.",
            )
        )
    children = list(
        step.children.select_related("first_message", "last_message")
        .only(*lists.STEP_COLUMNS)
        .order_by("order")[:CHILDREN_SHOWN]
    )
    if children:
        found.append(table_of("What became of its input", children, RELATED_CELLS))
    return found


def joined_steps(merge: CompactionStep) -> list[CompactionStep]:
    """Return the steps whose outputs a merge joined, the older part first."""
    earlier = (
        CompactionStep.objects.filter(run=merge.run_id, order__lte=merge.order)
        .select_related("first_message", "last_message")
        .only(*lists.STEP_COLUMNS)
        .order_by("order")[:MOST_LOOKED_THROUGH]
    )
    nodes = arrange(list(earlier))
    return next((list(node.joins) for node in nodes if node.step == merge), [])

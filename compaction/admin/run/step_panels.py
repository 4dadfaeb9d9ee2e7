"""What a step's page shows beside its fields: input, output, and the steps around it."""

from __future__ import annotations

from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Link, Panel, Table
from compaction import vocabulary
from compaction.admin import tables
from compaction.admin.run.step_input import StepInput
from compaction.admin.run.tree_layout import arrange
from compaction.engine.strategies.prompts import BETWEEN_BLOCKS
from compaction.models import CompactionRun, CompactionStep

CHILDREN_SHOWN = 50
# A merge joins what stands shortly before it or far up: so many steps are looked through.
MOST_LOOKED_THROUGH = 2000


def input_panel(step: CompactionStep, download: str) -> Panel:
    """Return what the summariser was given, each text up to cells.SHOWN_CHARS."""
    given = StepInput(step)
    shown, messages_cut = _beginning(given)
    texts = [
        {"title": title, "body": _text(text)}
        for title, text in zip(_titles(step), step.texts, strict=False)
    ]
    long = [text for text in (step.prompt, *step.texts) if len(text) > cells.SHOWN_CHARS]
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
            "shown": formatting.number(cells.SHOWN_CHARS),
            "download": download,
        },
    )
    return Panel(title="Input", body=body)


def output_panel(step: CompactionStep) -> Panel:
    """Return what came back: the text, and why it did not count."""
    error = (
        format_html('<h3>Error</h3><div dir="auto">{}</div>', _text(step.error))
        if step.error
        else SafeString("")
    )
    output = (
        _text(step.output)
        if step.output
        else format_html('<p class="help">{}</p>', "No text came back.")
    )
    sign = vocabulary.OUTCOMES[vocabulary.outcome_kind(step)]
    meaning = vocabulary.OUTCOME_MEANINGS[vocabulary.outcome_kind(step)]
    return Panel(
        title="Output",
        note=f"{sign.capitalize()}: {meaning}. {step.output_tokens:,} tokens, "
        f"{vocabulary.step_seconds(step)}.",
        body=format_html('<div class="step-input">{}{}</div>', error, output),
    )


def _text(text: str) -> SafeString:
    """Return a text in its frame; what is too long is cut, and the page says so."""
    return format_html("{}", cells.stored_text(text[: cells.SHOWN_CHARS]))


def _beginning(given: StepInput) -> tuple[str, bool]:
    """Return the messages up to SHOWN_CHARS, and whether that is not all of them."""
    shown, size = [], 0
    for block in given.message_blocks():
        shown.append(block)
        size += len(block) + len(BETWEEN_BLOCKS)
        if size > cells.SHOWN_CHARS:
            break
    text = BETWEEN_BLOCKS.join(shown)
    return text[: cells.SHOWN_CHARS], len(text) > cells.SHOWN_CHARS or size > cells.SHOWN_CHARS


def _titles(step: CompactionStep) -> tuple[str, ...]:
    if step.kind == vocabulary.MERGE:
        return ("First part: the older summary", "Second part: the newer summary")
    return ("The summary that it continues",)


def _messages_title(given: StepInput) -> str:
    count = given.step.message_count
    return f"{count:,} message{'' if count == 1 else 's'}, as the summariser got them"


def _no_instruction(step: CompactionStep) -> str:
    if vocabulary.is_forced(step):
        return "No model was asked: the text was shortened here, from the input below."
    return "No model was instructed: sentences were chosen from the input below."


def _warning(given: StepInput) -> str:
    if given.is_complete:
        return ""
    found, count = given.message_count, given.step.message_count
    if not found:
        return "The messages cannot be found any more."
    return (
        f"The step was given {count:,} messages, and {found:,} are found in its range now: what "
        "counts as a message of the conversation has changed since (pinned, or deleted)."
    )


def step_links(step: CompactionStep) -> list[Link]:
    """Return the ways to the run and to the steps before, after and above."""
    links = [
        Link(label="Run and its tree", url=cells.change_url(CompactionRun, step.run_id)),
        Link(
            label="Steps of the run",
            url=cells.list_url(CompactionStep, run__id__exact=step.run_id),
        ),
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
            links.append(Link(label=label, url=cells.change_url(CompactionStep, pk)))
    return links


def related_tables(step: CompactionStep) -> list[Table]:
    """Return the steps that a merge joined, and those that a step's input went to next."""
    found = []
    if step.kind == vocabulary.MERGE:
        joined = joined_steps(step)
        found.append(_table("The parts that it joined", joined, "They cannot be told any more."))
    children = list(
        step.children.select_related("first_message", "last_message")
        .only(*tables.STEP_COLUMNS)
        .order_by("order")[:CHILDREN_SHOWN]
    )
    if children:
        found.append(_table("What became of its input", children, ""))
    return found


def joined_steps(merge: CompactionStep) -> list[CompactionStep]:
    """Return the steps whose outputs a merge joined, the older part first."""
    earlier = (
        CompactionStep.objects.filter(run=merge.run_id, order__lte=merge.order)
        .select_related("first_message", "last_message")
        .only(*tables.STEP_COLUMNS)
        .order_by("order")[:MOST_LOOKED_THROUGH]
    )
    nodes = arrange(list(earlier))
    return next((list(node.joins) for node in nodes if node.step == merge), [])


def _table(title: str, steps: list[CompactionStep], empty: str) -> Table:
    rows: list[tuple[Any, ...]] = [
        (
            cells.row_link(step, f"{step.order}. {step.kind}"),
            tables.outcome(step),
            tables.message_range(step),
            formatting.number(step.input_tokens),
            formatting.number(step.output_tokens),
            vocabulary.step_seconds(step),
        )
        for step in steps
    ]
    columns = ("Step", "Outcome", "Messages", "Tokens in", "out", "Time")
    return Table(title=title, columns=columns, rows=rows, empty=empty)

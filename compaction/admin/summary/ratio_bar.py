"""How much smaller a summary made things: two pairs of bars, and the same in words."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.parts import Panel
from chatapp.admin.svg import drawing, element
from compaction import vocabulary
from compaction.models import SessionSummary

WIDTH, LABEL_WIDTH, BAR_HEIGHT, ROW, PAIR_GAP = 400, 110, 16, 22, 10
NUMBER_WIDTH = 60


def ratio_panel(summary: SessionSummary) -> Panel:
    """Return bars for what was read and for the next request, each before and after."""
    pairs = [
        ("Messages read", summary.approx_tokens, "Summary", summary.summary_tokens),
        ("Request before", summary.tokens_before, "Request after", summary.tokens_after),
    ]
    body = format_html(
        '<div class="ratio"><p>{}</p><p>{}</p><div class="ratio-frame">{}</div>'
        '<p class="help">{}</p></div>',
        f"Of what was read, {became(summary.approx_tokens, summary.summary_tokens)}.",
        f"Of the next request's summaries and history, {_of_request(summary)}.",
        bars(pairs),
        made_by(summary),
    )
    return Panel(title="How much smaller", body=body)


def became(before: int, after: int) -> str:
    """Return the sentence: 14,500 tokens became 1,900: 13 %."""
    share = f": {100 * after / before:.0f} %" if before else ""
    return f"{before:,} tokens became {after:,}{share}"


def _of_request(summary: SessionSummary) -> str:
    """Return what became of a request; of a draft's, what would."""
    said = became(summary.tokens_before, summary.tokens_after)
    is_draft = summary.status == SessionSummary.Status.DRAFT
    return said.replace("became", "would become") if is_draft else said


def made_by(summary: SessionSummary) -> str:
    """Return why and how it was made, as one sentence."""
    why = f"{vocabulary.reason_words(summary.reason)} ({vocabulary.trigger_words(summary.trigger)})"
    parts = [f"{why}; made by {summary.model or 'an unknown model'}"]
    if summary.prompt_version:
        parts.append(f"prompts of {summary.prompt_version}")
    if summary.run is not None:
        parts.append(vocabulary.seconds(summary.run))
    parts.append(f"cost {formatting.money(summary.cost)}" if summary.cost else "no price")
    return ", ".join(parts) + "."


def bars(pairs: list[tuple[str, int, str, int]]) -> SafeString:
    """Return the drawing: (label, tokens) before over (label, tokens) after, all on one scale."""
    most = max([1, *(max(before, after) for _, before, _, after in pairs)])
    room = WIDTH - LABEL_WIDTH - NUMBER_WIDTH
    shapes, y = [], 0
    for old, before, new, after in pairs:
        for label, tokens, cls in ((old, before, "before"), (new, after, "after")):
            width = max(room * tokens / most, 1.0)
            shapes += [
                element("text", label, x=0, y=y + 13, cls="ratio-label"),
                element(
                    "rect", cls=f"ratio-{cls}", x=LABEL_WIDTH, y=y, width=width, height=BAR_HEIGHT
                ),
                element(
                    "text", f"{tokens:,}", x=LABEL_WIDTH + width + 6, y=y + 13, cls="ratio-number"
                ),
            ]
            y += ROW
        y += PAIR_GAP
    label = "; ".join(
        f"{old} {before:,} tokens, {new} {after:,} tokens" for old, before, new, after in pairs
    )
    return drawing(*shapes, width=WIDTH, height=y - PAIR_GAP, label=label, cls="ratio-bars")

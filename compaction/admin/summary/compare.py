"""Two summaries of one session side by side: the words that differ, and the figures that do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin import cells
from chatapp.admin.parts import Table
from chatapp.formatting import when
from chatapp.models import Session
from compaction import vocabulary
from compaction.admin import badges
from compaction.admin.summary.differences import Change, Differences, differences_of
from compaction.models import SessionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two summaries of one session, the older one first."""

    old: SessionSummary
    new: SessionSummary


def pair_of(first: UUID, second: UUID) -> Pair | None:
    """Return two summaries in the order they were made; None unless one session has both."""
    rows = list(
        SessionSummary.objects.filter(pk__in=[first, second])
        .select_related("run", "profile", "session")
        .defer("summary_prompt", "abridged", "metadata")
        .order_by("created_at", "id")
    )
    if len(rows) != 2 or rows[0].session_id != rows[1].session_id:
        return None
    return Pair(old=rows[0], new=rows[1])


def compare_page(request: HttpRequest, pair: Pair, site: dict[str, Any]) -> HttpResponse:
    """Return the page; `site` is what the admin's own frame needs."""
    old, new = (side.summary_text[: cells.SHOWN_CHARS] for side in (pair.old, pair.new))
    found = differences_of(old, new)
    longest = max(len(pair.old.summary_text), len(pair.new.summary_text))
    context = site | {
        "title": "Two summaries side by side",
        "opts": SessionSummary._meta,
        "session": pair.new.session,
        "session_url": cells.change_url(Session, pair.new.session_id),
        "sides": [
            _side("Older", pair.old, found.changes, is_old=True),
            _side("Newer", pair.new, found.changes, is_old=False),
        ],
        "verdict": verdict(found),
        "is_cut": longest > cells.SHOWN_CHARS,
        "shown": formatting.number(cells.SHOWN_CHARS),
        "table": figures_table(pair),
    }
    return TemplateResponse(request, "admin/compaction/compare.html", context)


def _side(
    label: str, summary: SessionSummary, changes: tuple[Change, ...], *, is_old: bool
) -> dict[str, Any]:
    return {
        "label": label,
        "summary": cells.row_link(summary, f"Summary {formatting.short_id(summary.pk)}"),
        "made": when(summary.created_at),
        "status": badges.summary_status(summary),
        "text": marked(changes, is_old=is_old),
    }


def marked(changes: tuple[Change, ...], *, is_old: bool) -> SafeString:
    """Return one side's text, escaped, with what the other one lacks marked: − del, + ins."""
    tag, sign = ("del", "−") if is_old else ("ins", "+")
    return format_html_join("", "{}", ((_piece(each, tag, sign, is_old),) for each in changes))


def _piece(change: Change, tag: str, sign: str, is_old: bool) -> SafeString | str:
    text = change.old if is_old else change.new
    if change.is_equal or not text:
        return text
    # A space behind the last word is no difference that anybody wants to see.
    shown = text.rstrip() or text
    return format_html(
        f'<{tag}><span class="diff-sign">{sign}</span>{{}}</{tag}>{{}}', shown, text[len(shown) :]
    )


def verdict(found: Differences) -> str:
    """Return how much differs, as a sentence."""
    changed = [change for change in found.changes if not change.is_equal]
    if not changed:
        return "The texts are equal."
    places = "1 place" if len(changed) == 1 else f"{len(changed):,} places"
    sentence = f"They differ in {places}: − is only in the older text, + only in the newer one."
    if found.is_coarse:
        sentence += " Some of it is too long to be compared word by word and is marked as a whole."
    return sentence


def figures_table(pair: Pair) -> Table:
    """Return the figures that differ, and the names of those that do not."""
    sides = [_figures(pair.old), _figures(pair.new)]
    differing = [name for name in sides[0] if sides[0][name] != sides[1][name]]
    same = ", ".join(name for name in sides[0] if name not in differing)
    return Table(
        title="What else differs",
        columns=("", "Older", "Newer"),
        note=f"The same in both: {same}." if same else "",
        rows=[(name, sides[0][name], sides[1][name]) for name in differing],
        empty="Nothing else differs.",
    )


def _figures(summary: SessionSummary) -> dict[str, str]:
    first, last = formatting.place(summary.covers_from), formatting.place(summary.covers_through)
    return {
        "Tokens of the text": formatting.number(summary.summary_tokens),
        "Tokens before → after": formatting.before_after(
            summary.tokens_before, summary.tokens_after
        ),
        "Ratio": formatting.percent(summary.compression_ratio),
        "Messages": formatting.number(summary.message_count),
        "Positions": f"{first} – {last}",
        "Truncated": "yes" if summary.truncated else "no",
        "Archive": "yes" if summary.is_digest else "no",
        "Model": summary.model or "—",
        "Temperature": "—" if summary.temperature is None else f"{summary.temperature:g}",
        "Target tokens": formatting.number(summary.target_summary_tokens),
        "Profile": str(summary.profile or "—"),
        "Prompt version": summary.prompt_version or "—",
        "Cost": formatting.money(summary.cost),
        "Took": vocabulary.seconds(summary.run) if summary.run else "—",
        "Reason": vocabulary.reason_words(summary.reason),
        "Instructions": formatting.shortened(summary.instructions, 2000) or "—",
    }

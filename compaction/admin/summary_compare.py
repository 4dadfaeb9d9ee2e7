"""Two summaries of one session side by side: the words that differ, and the figures that do.

Lines are compared first, then sentences, and only what differs there word by word; a part that is
too long for that is told as a whole. So two long texts take well under a second, whatever they say.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Table
from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, may_see_texts, name_for
from chatapp.formatting import when
from chatapp.models import Session
from compaction import vocabulary
from compaction.admin import lists
from compaction.admin.summary_panels import person_of
from compaction.admin.version_forms import activation_beside
from compaction.engine.policy.reasons import reason_label
from compaction.models import SessionSummary

# Scripts without spaces between words: compared letter by letter.
_LETTERS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_LETTERS}]\s*|(?:(?![{_LETTERS}])\w)+\s*|[^\w\s]\s*|\s+")
_SENTENCES = re.compile(r"[^.!?。！？]*[.!?。！？]+\s*|[^.!?。！？]+")
# Pairs of equal pieces that a comparison may look at; so many take about half a second.
MOST_STEPS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChange:
    """A part of both texts: equal, or what the older one had and the newer one has instead."""

    old: str
    new: str
    is_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDifferences:
    """All parts in order; `is_coarse`: some were too long to be compared word by word."""

    changes: tuple[TextChange, ...]
    is_coarse: bool = False


def differences_of(old: str, new: str) -> TextDifferences:
    """Return what two texts differ in; joined, the parts give both texts back."""
    compared = _Comparison()
    compared.descend(old, new, level=0)
    return TextDifferences(changes=tuple(_joined(compared.changes)), is_coarse=compared.is_coarse)


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends."""
    return text.splitlines(keepends=True)


def sentences_of(text: str) -> list[str]:
    """Return the sentences with the spaces behind them."""
    return _SENTENCES.findall(text)


def words_of(text: str) -> list[str]:
    """Return words with the spaces behind them; Chinese and Japanese letter by letter."""
    return _WORDS.findall(text)


_LEVELS = (lines_of, sentences_of, words_of)


class _Comparison:
    def __init__(self) -> None:
        self.changes: list[TextChange] = []
        self.is_coarse = False
        self._steps_left: float = MOST_STEPS

    def descend(self, old: str, new: str, *, level: int) -> None:
        """Compare two parts piece by piece, and what differs by smaller pieces."""
        if old == new:
            self._add(old, new, is_equal=True)
        elif not old or not new or level == len(_LEVELS):
            self._add(old, new, is_equal=False)
        else:
            self._compare(_LEVELS[level](old), _LEVELS[level](new), level)

    def _compare(self, old: Sequence[str], new: Sequence[str], level: int) -> None:
        at_old = at_new = 0
        for block in [*self._blocks(old, new), Match(len(old), len(new), 0)]:
            before, after = "".join(old[at_old : block.a]), "".join(new[at_new : block.b])
            self.descend(before, after, level=level + 1)
            at_old, at_new = block.a + block.size, block.b + block.size
            same = "".join(old[block.a : at_old])
            self._add(same, same, is_equal=True)

    def _blocks(self, old: Sequence[str], new: Sequence[str]) -> list[Match]:
        """Return the parts that are equal, in order, as far as the budget goes.

        Every search costs the pieces it looks at times how often each stands in the other text, so
        that is what it is charged. The large parts come first; what is not searched any more
        counts as different.
        """
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        each = 1 + _pairs(old, new) / max(1, len(old))
        todo, found = deque([(0, len(old), 0, len(new))]), []
        while todo:
            old_from, old_to, new_from, new_to = todo.popleft()
            if old_from == old_to or new_from == new_to:
                continue
            cost = (old_to - old_from) * each
            if cost > self._steps_left:
                self.is_coarse = True
                continue
            self._steps_left -= cost
            block = matcher.find_longest_match(old_from, old_to, new_from, new_to)
            if block.size:
                found.append(block)
                todo.append((old_from, block.a, new_from, block.b))
                todo.append((block.a + block.size, old_to, block.b + block.size, new_to))
        return sorted(found)

    def _add(self, old: str, new: str, *, is_equal: bool) -> None:
        if old or new:
            self.changes.append(TextChange(old=old, new=new, is_equal=is_equal))


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many equal pairs there are."""
    counted = Counter(new)
    return sum(counted[piece] for piece in old)


def _joined(changes: Sequence[TextChange]) -> list[TextChange]:
    """Return neighbours of one kind as one."""
    joined: list[TextChange] = []
    for change in changes:
        if joined and joined[-1].is_equal == change.is_equal:
            last = joined.pop()
            change = TextChange(
                old=last.old + change.old, new=last.new + change.new, is_equal=last.is_equal
            )
        joined.append(change)
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two summaries of one session, the older one first."""

    old: SessionSummary
    new: SessionSummary


def pair_of(first: UUID, second: UUID) -> Pair | None:
    """Return two summaries in the order they were made; None unless one session has both."""
    rows = list(
        SessionSummary.objects.filter(pk__in=[first, second])
        .select_related("run", "profile", "session", "author")
        .defer("summary_prompt", "abridged", "metadata")
        .order_by("created_at", "id")
    )
    if len(rows) != 2 or rows[0].session_id != rows[1].session_id:
        return None
    return Pair(old=rows[0], new=rows[1])


def compare_page(request: HttpRequest, pair: Pair, site: dict[str, Any]) -> HttpResponse:
    """Return the page; `site` is what the admin's own frame needs."""
    texts = may_see_texts(request)
    sides = [
        side.summary_text[: html.SHOWN_CHARS] if texts else "" for side in (pair.old, pair.new)
    ]
    found = differences_of(*sides)
    longest = max(len(pair.old.summary_text), len(pair.new.summary_text))
    context = site | {
        "title": "Two summaries side by side",
        "opts": SessionSummary._meta,
        "session": name_for(request, pair.new.session),
        "session_url": html.change_url(Session, pair.new.session_id),
        "sides": [
            _side("Older", pair.old, found.changes, is_old=True)
            | {"activation": activation_beside(request, pair.old, pair.new)},
            _side("Newer", pair.new, found.changes, is_old=False)
            | {"activation": activation_beside(request, pair.new, pair.old)},
        ],
        "texts": texts,
        "verdict": verdict(found) if texts else TEXTS_HIDDEN,
        "is_cut": texts and longest > html.SHOWN_CHARS,
        "shown": formatting.number(html.SHOWN_CHARS),
        "table": figures_table(pair, texts=texts),
    }
    return TemplateResponse(request, "admin/compaction/compare.html", context)


def _side(
    label: str, summary: SessionSummary, changes: tuple[TextChange, ...], *, is_old: bool
) -> dict[str, Any]:
    return {
        "label": label,
        "summary": html.row_link(summary, f"Summary {formatting.short_id(summary.pk)}"),
        "made": when(summary.created_at),
        "status": lists.summary_status(summary),
        "text": marked(changes, is_old=is_old),
    }


def marked(changes: tuple[TextChange, ...], *, is_old: bool) -> SafeString:
    """Return one side's text, escaped, with what the other one lacks marked: − del, + ins."""
    tag, sign = ("del", "−") if is_old else ("ins", "+")
    return format_html_join("", "{}", ((_piece(each, tag, sign, is_old),) for each in changes))


def _piece(change: TextChange, tag: str, sign: str, is_old: bool) -> SafeString | str:
    text = change.old if is_old else change.new
    if change.is_equal or not text:
        return text
    # A space behind the last word is no difference that anybody wants to see.
    shown = text.rstrip() or text
    return format_html(
        f'<{tag}><span class="diff-sign">{sign}</span>{{}}</{tag}>{{}}', shown, text[len(shown) :]
    )


def verdict(found: TextDifferences) -> str:
    """Return how much differs, as a sentence."""
    changed = [change for change in found.changes if not change.is_equal]
    if not changed:
        return "The texts are equal."
    places = "1 place" if len(changed) == 1 else f"{len(changed):,} places"
    sentence = f"They differ in {places}: − is only in the older text, + only in the newer one."
    if found.is_coarse:
        sentence += " Some of it is too long to be compared word by word and is marked as a whole."
    return sentence


def figures_table(pair: Pair, *, texts: bool = True) -> Table:
    """Return the figures that differ, and the names of those that do not; also short `texts`."""
    sides = [_figures(side) | (_texts(side) if texts else {}) for side in (pair.old, pair.new)]
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
        "Request, tokens before → after": formatting.before_after(
            summary.tokens_before, summary.tokens_after
        ),
        "Ratio": formatting.percent(summary.compression_ratio),
        "Messages": formatting.number(summary.message_count),
        "Positions": f"{first} – {last}",
        "Truncated": "yes" if summary.truncated else "no",
        "Fallback digest": "yes" if summary.is_digest else "no",
        "Model": person_of(summary) if summary.is_edited else summary.model or "—",
        "Temperature": "—" if summary.temperature is None else f"{summary.temperature:g}",
        "Target tokens": formatting.number(summary.target_summary_tokens),
        "Profile": str(summary.profile or "—"),
        "Prompt version": summary.prompt_version or "—",
        "Cost": formatting.money(summary.cost),
        "Took": vocabulary.seconds(summary.run) if summary.run else "—",
        "Reason": reason_label(summary.reason),
    }


def _texts(summary: SessionSummary) -> dict[str, str]:
    return {"Instructions": formatting.shortened(summary.instructions, 2000) or "—"}

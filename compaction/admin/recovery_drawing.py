"""A recovery as a piece of a page: drawn step by step, with a legend, and as a table.

It is drawn as wide as a telephone shows it, so its text is as large as the page's everywhere.
Colours come from static/compaction/recovery.css.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Panel, Table
from chatapp.admin.toolkit.permissions import may_see_texts
from chatapp.admin.toolkit.svg import anchor, drawing, element, title
from chatapp.models import Branch
from compaction.admin.recovery import (
    GAVE_UP,
    THROUGH,
    RecoveryAction,
    TurnRecovery,
    action_words,
    actions_words,
    amount_words,
    end_words,
    outcome_words,
    recoveries_of,
    refusal_words,
    title_of,
)
from compaction.models import CompactionRun, RecoveryStep

WIDTH, HEAD, ROW, FOOT = 380, 26, 60, 30
RAILS = (9.0, 31.0)
NODE = 20
LEFT = 46
BAR_TOP, BAR_HEIGHT, LINE = 25, 12, 51
BARS = WIDTH - LEFT - 4
NARROWEST = 2.0
# A limit that is further to the right than this many largest requests is only told, not drawn.
FURTHEST_LIMIT = 2
# Drawn, not written: every font has them. 12 by 12.
SIGNS = {
    "compact": "M1 2.5h10M3 6h6M5 9.5h2",
    "truncate": "M1 6h6M9 1.5v9",
    "halve": "M6 1v4L2 10M6 5l4 5",
    "give_up": "M2.5 2.5l7 7M9.5 2.5l-7 7",
    "through": "M2 6.5l3 3 5-7",
    "open": "M2 6h.1M6 6h.1M10 6h.1",
}
END_NAMES = {THROUGH: "Went through", GAVE_UP: "Gave up", "open": "The end is not known"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenScale:
    whole: int
    limit: int | None

    def width(self, tokens: int) -> float:
        return max(NARROWEST, BARS * tokens / self.whole)


def _scale(recovery: TurnRecovery) -> _TokenScale:
    largest = max(1, recovery.largest)
    limit = recovery.limit
    if limit is not None and limit > FURTHEST_LIMIT * largest:
        limit = None
    return _TokenScale(whole=max(largest, limit or 0), limit=limit)


def draw(recovery: TurnRecovery) -> SafeString:
    """Return the drawing: the first step above, the end below, links to runs and branches."""
    scale = _scale(recovery)
    height = HEAD + ROW * len(recovery.tried) + FOOT
    return drawing(
        *_rails(height),
        _limit(recovery, scale),
        *(_step(step, number, scale) for number, step in enumerate(recovery.tried)),
        _end(recovery, HEAD + ROW * len(recovery.tried)),
        width=WIDTH,
        height=height,
        label=label_of(recovery),
        cls="recovery",
        has_links=True,
    )


def label_of(recovery: TurnRecovery) -> str:
    """Return what the drawing shows, in one sentence."""
    count = len(recovery.tried)
    steps = formatting.plural(count, "step")
    return f"A recovery of {steps}: {END_NAMES[recovery.end].lower()}; the same stands in the table"


def _rails(height: float) -> list[SafeString]:
    return [element("line", x1=x, x2=x, y1=4, y2=height - 4, cls="recovery-rail") for x in RAILS]


def _limit(recovery: TurnRecovery, scale: _TokenScale) -> SafeString:
    """Return what the lines are that requests have to stay left of."""
    if recovery.limit is None:
        return element("text", "Tokens of the request", x=LEFT, y=16, cls="recovery-quiet")
    words = f"{'Allowed' if recovery.is_named else 'Window'}: {recovery.limit:,} tokens"
    if scale.limit is None:
        return element("text", words, x=LEFT, y=16, cls="recovery-quiet")
    x = LEFT + BARS * scale.limit / scale.whole
    at = {"x": x, "text_anchor": "middle"}
    if x < LEFT + 80:
        at = {"x": float(LEFT), "text_anchor": "start"}
    elif x > WIDTH - 80:
        at = {"x": float(WIDTH - 2), "text_anchor": "end"}
    return element("text", words, y=16, cls="recovery-quiet", **at)


def _step(step: RecoveryStep, number: int, scale: _TokenScale) -> SafeString:
    top = HEAD + ROW * number
    said = _said(step, number)
    outcome = outcome_words(step)
    shapes = [
        element("rect", cls="recovery-hit", x=0, y=top + 1, width=WIDTH, height=ROW - 2, rx=4),
        *_node(step.action, f"is-{step.outcome}", top + 4),
        _text(f"{number + 1}. {action_words(step)} · {outcome}", LEFT, top + 17, "recovery-name"),
        *_bars(step, top, scale),
        _text(amount_words(step), LEFT, top + LINE, "recovery-quiet"),
        _tokens(step, top),
    ]
    url = url_of(step)
    if url:
        return anchor(url, title(said), *shapes, label=said)
    return element("g", title(said), *shapes)


def _tokens(step: RecoveryStep, top: float) -> SafeString:
    if step.tokens_after == step.tokens_before:
        words = f"{step.tokens_before:,}"
    else:
        words = f"{step.tokens_before:,} → {step.tokens_after:,}"
    return element(
        "text", words, x=WIDTH - 4, y=top + LINE, text_anchor="end", cls="recovery-tokens"
    )


def _bars(step: RecoveryStep, top: float, scale: _TokenScale) -> list[SafeString]:
    """Return the request before as a frame, and the one after as what is filled of it."""
    place = {"x": LEFT, "y": top + BAR_TOP, "height": BAR_HEIGHT}
    before = scale.width(step.tokens_before)
    after = scale.width(step.tokens_after)
    shapes = [
        element("rect", cls=f"recovery-after is-{step.outcome}", width=after, **place),
        element("rect", cls="recovery-before", width=before, **place),
    ]
    if scale.limit is not None:
        x = LEFT + BARS * scale.limit / scale.whole
        ends = {"y1": top + BAR_TOP - 4, "y2": top + BAR_TOP + BAR_HEIGHT + 4}
        shapes.append(element("line", x1=x, x2=x, cls="recovery-limit", **ends))
    return shapes


def _end(recovery: TurnRecovery, top: float) -> SafeString:
    sign = {THROUGH: "through", GAVE_UP: "give_up"}.get(recovery.end, "open")
    tone = {THROUGH: "is-smaller", GAVE_UP: "is-failed"}.get(recovery.end, "is-no_help")
    name = END_NAMES[recovery.end]
    if recovery.end == THROUGH:
        name += f" with {recovery.last.tokens_after:,} tokens"
    return element("g", *_node(sign, tone, top + 4), _text(name, LEFT, top + 18, "recovery-name"))


def _node(sign: str, tone: str, top: float) -> list[SafeString]:
    x = (RAILS[0] + RAILS[1] - NODE) / 2
    box = {"x": RAILS[0] - 4, "width": RAILS[1] - RAILS[0] + 8, "height": NODE, "rx": 4}
    return [
        element("rect", cls=f"recovery-node {tone}", y=top, **box),
        element(
            "path",
            cls="recovery-sign",
            d=SIGNS.get(sign, SIGNS["open"]),
            transform=f"translate({x + 4:g} {top + 4:g})",
        ),
    ]


def _text(words: str, x: float, y: float, cls: str) -> SafeString:
    return element("text", words, x=x, y=y, cls=cls)


def _said(step: RecoveryStep, number: int) -> str:
    amount = amount_words(step)
    return (
        f"{number + 1}. {action_words(step)}, {outcome_words(step)}: {step.tokens_before:,} tokens "
        f"before, {step.tokens_after:,} after{f'; {amount}' if amount else ''}"
    )


def url_of(step: RecoveryStep) -> str:
    """Return where a step leads: to its run, or to the branch it replayed."""
    if step.run_id:
        return html.change_url(CompactionRun, step.run_id)
    return html.change_url(Branch, step.replay_id) if step.replay_id else ""


def recovery_panels(request: HttpRequest, run: CompactionRun) -> list[Panel]:
    """Return the recoveries that a run is a step of: one, or none for a run that came by itself."""
    ids = RecoveryStep.objects.filter(run=run).values_list("recovery", flat=True)
    recoveries = recoveries_of(run.session, ids)
    return [
        Panel(
            title="Recovery of the turn",
            body=recovery_body(recovery, texts=may_see_texts(request)),
            note=f"{title_of(recovery)}. {actions_words(recovery)}",
        )
        for recovery in recoveries.values()
    ]


def recovery_body(recovery: TurnRecovery, *, texts: bool) -> SafeString:
    """Return drawing, legend and table of a recovery; sentences that may quote only as `texts`."""
    said = dict.fromkeys(step.error for step in recovery.steps if step.error and texts)
    return render_to_string(
        "admin/compaction/recovery.html",
        {
            "drawing": draw(recovery),
            "end": html.told_text(end_words(recovery, texts=texts)),
            "limit": recovery.limit,
            "said": list(said),
            "table": _table(recovery, texts=texts),
        },
    )


def _table(recovery: TurnRecovery, *, texts: bool) -> Table:
    return Table(
        title="Steps of the recovery",
        columns=(
            "Step",
            "Tried",
            "Came of it",
            "Tokens before → after",
            "Refused before it",
            "More",
        ),
        rows=[_row(number, step, texts=texts) for number, step in enumerate(recovery.steps, 1)],
    )


def _row(number: int, step: RecoveryStep, *, texts: bool) -> tuple[SafeString | str | int, ...]:
    if step.action == RecoveryAction.GIVE_UP:
        tokens = formatting.number(step.tokens_before)
    else:
        tokens = f"{step.tokens_before:,} → {step.tokens_after:,}"
    return (
        number,
        action_words(step),
        outcome_words(step),
        tokens,
        refusal_words(step),
        _more(step, texts=texts),
    )


def _more(step: RecoveryStep, *, texts: bool) -> SafeString:
    """Return what else is known: how much, why it did not help, and where it can be seen.

    What the user was told in the end stands above the table.
    """
    why = "" if step.action == RecoveryAction.GIVE_UP or not texts else step.text
    parts: list[SafeString | str] = [part for part in (amount_words(step), why) if part]
    if step.run_id:
        parts.append(html.link("its run", html.change_url(CompactionRun, step.run_id)))
    if step.replay_id:
        parts.append(html.link("the new branch", html.change_url(Branch, step.replay_id)))
    return format_html_join(" · ", "{}", ((part,) for part in parts))

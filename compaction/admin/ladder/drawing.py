"""A recovery as a drawing: two rails, a step for each move, and the request's tokens as bars.

It is drawn as wide as a telephone shows it, so its text is as large as the page's everywhere.
Colours come from static/compaction/recovery.css.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.svg import anchor, drawing, element, title
from chatapp.models import Branch
from compaction.admin.ladder.climb import (
    GAVE_UP,
    THROUGH,
    Climb,
    amount_words,
    move_words,
    outcome_words,
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
class _Scale:
    whole: int
    limit: int | None

    def width(self, tokens: int) -> float:
        return max(NARROWEST, BARS * tokens / self.whole)


def _scale(climb: Climb) -> _Scale:
    largest = max(1, climb.largest)
    limit = climb.limit
    if limit is not None and limit > FURTHEST_LIMIT * largest:
        limit = None
    return _Scale(whole=max(largest, limit or 0), limit=limit)


def draw(climb: Climb) -> SafeString:
    """Return the drawing: the first step above, the end below, links to runs and branches."""
    scale = _scale(climb)
    height = HEAD + ROW * len(climb.tried) + FOOT
    return drawing(
        *_rails(height),
        _limit(climb, scale),
        *(_rung(recovery_step, number, scale) for number, recovery_step in enumerate(climb.tried)),
        _end(climb, HEAD + ROW * len(climb.tried)),
        width=WIDTH,
        height=height,
        label=label_of(climb),
        cls="ladder",
        has_links=True,
    )


def label_of(climb: Climb) -> str:
    """Return what the drawing shows, in one sentence."""
    count = len(climb.tried)
    steps = f"{count} rung{'' if count == 1 else 's'}"
    return f"A ladder of {steps}: {END_NAMES[climb.end].lower()}; the same stands in the table"


def _rails(height: float) -> list[SafeString]:
    return [element("line", x1=x, x2=x, y1=4, y2=height - 4, cls="ladder-rail") for x in RAILS]


def _limit(climb: Climb, scale: _Scale) -> SafeString:
    """Return what the lines are that requests have to stay left of."""
    if climb.limit is None:
        return element("text", "Tokens of the request", x=LEFT, y=16, cls="ladder-quiet")
    words = f"{'Allowed' if climb.is_named else 'Window'}: {climb.limit:,} tokens"
    if scale.limit is None:
        return element("text", words, x=LEFT, y=16, cls="ladder-quiet")
    x = LEFT + BARS * scale.limit / scale.whole
    at = {"x": x, "text_anchor": "middle"}
    if x < LEFT + 80:
        at = {"x": float(LEFT), "text_anchor": "start"}
    elif x > WIDTH - 80:
        at = {"x": float(WIDTH - 2), "text_anchor": "end"}
    return element("text", words, y=16, cls="ladder-quiet", **at)


def _rung(recovery_step: RecoveryStep, number: int, scale: _Scale) -> SafeString:
    top = HEAD + ROW * number
    said = _said(recovery_step, number)
    outcome = outcome_words(recovery_step)
    shapes = [
        element("rect", cls="ladder-hit", x=0, y=top + 1, width=WIDTH, height=ROW - 2, rx=4),
        *_node(recovery_step.action, f"is-{recovery_step.outcome}", top + 4),
        _text(
            f"{number + 1}. {move_words(recovery_step)} · {outcome}", LEFT, top + 17, "ladder-name"
        ),
        *_bars(recovery_step, top, scale),
        _text(amount_words(recovery_step), LEFT, top + LINE, "ladder-quiet"),
        _tokens(recovery_step, top),
    ]
    url = url_of(recovery_step)
    if url:
        return anchor(url, title(said), *shapes, label=said)
    return element("g", title(said), *shapes)


def _tokens(recovery_step: RecoveryStep, top: float) -> SafeString:
    if recovery_step.tokens_after == recovery_step.tokens_before:
        words = f"{recovery_step.tokens_before:,}"
    else:
        words = f"{recovery_step.tokens_before:,} → {recovery_step.tokens_after:,}"
    return element("text", words, x=WIDTH - 4, y=top + LINE, text_anchor="end", cls="ladder-tokens")


def _bars(recovery_step: RecoveryStep, top: float, scale: _Scale) -> list[SafeString]:
    """Return the request before as a frame, and the one after as what is filled of it."""
    place = {"x": LEFT, "y": top + BAR_TOP, "height": BAR_HEIGHT}
    before = scale.width(recovery_step.tokens_before)
    after = scale.width(recovery_step.tokens_after)
    shapes = [
        element("rect", cls=f"ladder-after is-{recovery_step.outcome}", width=after, **place),
        element("rect", cls="ladder-before", width=before, **place),
    ]
    if scale.limit is not None:
        x = LEFT + BARS * scale.limit / scale.whole
        ends = {"y1": top + BAR_TOP - 4, "y2": top + BAR_TOP + BAR_HEIGHT + 4}
        shapes.append(element("line", x1=x, x2=x, cls="ladder-limit", **ends))
    return shapes


def _end(climb: Climb, top: float) -> SafeString:
    sign = {THROUGH: "through", GAVE_UP: "give_up"}.get(climb.end, "open")
    tone = {THROUGH: "is-smaller", GAVE_UP: "is-failed"}.get(climb.end, "is-no_help")
    name = END_NAMES[climb.end]
    if climb.end == THROUGH:
        name += f" with {climb.last.tokens_after:,} tokens"
    return element("g", *_node(sign, tone, top + 4), _text(name, LEFT, top + 18, "ladder-name"))


def _node(sign: str, tone: str, top: float) -> list[SafeString]:
    x = (RAILS[0] + RAILS[1] - NODE) / 2
    box = {"x": RAILS[0] - 4, "width": RAILS[1] - RAILS[0] + 8, "height": NODE, "rx": 4}
    return [
        element("rect", cls=f"ladder-node {tone}", y=top, **box),
        element(
            "path",
            cls="ladder-sign",
            d=SIGNS.get(sign, SIGNS["open"]),
            transform=f"translate({x + 4:g} {top + 4:g})",
        ),
    ]


def _text(words: str, x: float, y: float, cls: str) -> SafeString:
    return element("text", words, x=x, y=y, cls=cls)


def _said(recovery_step: RecoveryStep, number: int) -> str:
    amount = amount_words(recovery_step)
    return (
        f"{number + 1}. {move_words(recovery_step)}, {outcome_words(recovery_step)}: {recovery_step.tokens_before:,} tokens "
        f"before, {recovery_step.tokens_after:,} after{f'; {amount}' if amount else ''}"
    )


def url_of(recovery_step: RecoveryStep) -> str:
    """Return where a step leads: to its run, or to the branch it replayed."""
    if recovery_step.run_id:
        return cells.change_url(CompactionRun, recovery_step.run_id)
    return cells.change_url(Branch, recovery_step.replay_id) if recovery_step.replay_id else ""

"""Draw the sequence pictures of docs/architecture.md: `python -m tests.sequences`.

Each picture is a list of steps between lanes, so that a change of the text is a change of one line
here. The SVG carries its own colours for light and dark, and needs no script and no font.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH = 980
TOP, HEAD_HEIGHT = 12, 38
STYLE = """
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}
.b{font-weight:600}.s{font-size:11.5px;fill:#59636e}.bg{fill:#fff}
.head{fill:#dbe9f4;stroke:#417690}.life{stroke:#b7c0c8;stroke-dasharray:4 4}
.a{stroke:#417690;stroke-width:1.5;fill:none}.tip{fill:#417690}
.frame{fill:none;stroke:#9a6700}.tag{fill:#fff4d6;stroke:#9a6700}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.s{fill:#9ba6b2}.bg{fill:#0d1117}.head{fill:#1d3a4f;stroke:#79aec8}
.life{stroke:#4a535d}.a{stroke:#79aec8}.tip{fill:#79aec8}
.frame{stroke:#d29922}.tag{fill:#3a2d0b;stroke:#d29922}}
""".replace("\n", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One column: who acts there, and what that belongs to."""

    name: str
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """An arrow from one lane to another, or a lane's own work; `note` stands below it."""

    source: int
    target: int
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """Steps that belong together, framed over the lanes `first` to `last`."""

    first: int
    last: int
    title: str
    steps: Sequence[Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One sequence picture."""

    title: str
    lanes: Sequence[Lane]
    steps: Sequence[Call | Frame]

    def svg(self) -> str:
        """Return the picture."""
        return Drawing(picture=self).svg()


@dataclass(kw_only=True)
class Drawing:
    """The picture while it is drawn, from top to bottom; `y` is where the next step goes."""

    picture: Picture
    y: float = TOP + HEAD_HEIGHT + 28
    body: list[str] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """The width of a lane."""
        return WIDTH / len(self.picture.lanes)

    def x(self, lane: int) -> float:
        """Return the middle of a lane."""
        return self.gap * (lane + 0.5)

    def svg(self) -> str:
        """Return the whole SVG."""
        for step in self.picture.steps:
            if isinstance(step, Frame):
                self._frame(step)
            else:
                self._step(step)
        height, title = self.y + 10, escape(self.picture.title)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
            f'aria-label="{title}"><title>{title}</title><style>{STYLE}</style>'
            f'<rect class="bg" width="{WIDTH}" height="{height:g}"/>'
        )
        lanes = [self._lane(number, height) for number in range(len(self.picture.lanes))]
        return "\n".join([head, *lanes, *self.body, "</svg>"]) + "\n"

    def _lane(self, number: int, height: float) -> str:
        lane, x, bottom = self.picture.lanes[number], self.x(number), TOP + HEAD_HEIGHT
        drawn = (
            f'<path class="life" d="M{x:g},{bottom} V{height - 8:g}"/>'
            f'<rect class="head" x="{x - self.gap * 0.45:g}" y="{TOP}" '
            f'width="{self.gap * 0.9:g}" height="{HEAD_HEIGHT}" rx="5"/>'
        )
        drawn += text(x, bottom - (22 if lane.part_of else 15), lane.name, kind="b")
        return drawn + (text(x, bottom - 7, lane.part_of, kind="s") if lane.part_of else "")

    def _step(self, step: Call) -> None:
        if step.source == step.target:
            self._own_work(step)
            return
        start, end = self.x(step.source), self.x(step.target)
        way = 1 if end > start else -1
        self.body.append(
            f'<path class="a" d="M{start:g},{self.y:g} H{end - way * 2:g}"/>'
            f'<path class="tip" d="M{end:g},{self.y:g} l{-way * 9},-4.5 v9 z"/>'
        )
        self.body.append(text((start + end) / 2, self.y - 7, step.text))
        if step.note:
            self.body.append(text((start + end) / 2, self.y + 15, step.note, kind="s"))
            self.y += 14
        self.y += 36

    def _own_work(self, step: Call) -> None:
        x, y = self.x(step.source), self.y
        self.body.append(
            f'<path class="a" d="M{x:g},{y:g} h26 v16 h-20"/>'
            f'<path class="tip" d="M{x + 2:g},{y + 16:g} l8,-4 v8 z"/>'
        )
        self.body.append(text(x + 34, y + 5, step.text, anchor="start"))
        if step.note:
            self.body.append(text(x + 34, y + 20, step.note, kind="s", anchor="start"))
            self.y += 12
        self.y += 42

    def _frame(self, frame: Frame) -> None:
        top = self.y - 20
        self.y += 22
        for step in frame.steps:
            self._step(step)
        left = self.x(frame.first) - self.gap * 0.46
        width = self.x(frame.last) + self.gap * 0.46 - left
        self.body.append(
            f'<rect class="frame" x="{left:g}" y="{top:g}" width="{width:g}" '
            f'height="{self.y - top - 14:g}" rx="4"/>'
            f'<rect class="tag" x="{left:g}" y="{top:g}" width="{7.1 * len(frame.title) + 18:.0f}" '
            f'height="20" rx="4"/>' + text(left + 9, top + 14, frame.title, "s", anchor="start")
        )
        self.y += 12


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "middle") -> str:
    """Return a line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


TURN = Picture(
    title="One turn",
    lanes=(
        Lane(name="Client"),
        Lane(name="Turn", part_of="chatapp"),
        Lane(name="Context backend", part_of="compaction"),
        Lane(name="Model server"),
        Lane(name="Database"),
    ),
    steps=(
        Call(0, 1, "POST turns/"),
        Call(1, 4, "take the turn's lease", "conditional UPDATE: one turn a session"),
        Call(1, 4, "store the user's message", "a transaction of its own: it is kept in any case"),
        Call(1, 2, "prepare"),
        Call(2, 4, "read the branch once: BranchSnapshot", "from the cursor on; sums are stored"),
        Call(2, 4, "a background trigger is due: queue a run", "this turn does not wait for it"),
        Frame(2, 4, "only where a trigger says that the request cannot wait", (
            Call(2, 2, "publish a draft, or compact", "if that fails, the old state is sent"),
        )),
        Call(2, 1, "Context", "messages and token account"),
        Call(1, 3, "ask: no transaction, no lock, no database connection"),
        Frame(1, 3, "refused", (
            Call(3, 1, "error", "classified; limits are learned"),
            Call(1, 1, "adapt the request once: not its size", "or, where it is too large:"),
            Call(1, 2, "recover", "compact, cut, send fewer"),
            Call(2, 1, "a smaller Context", "or the sentence of the end"),
            Call(1, 3, "ask again: never the same request"),
        )),
        Call(3, 1, "answer"),
        Call(1, 0, "text, piece by piece", "where a stream was asked for"),
        Call(1, 4, "store the answer"),
        Call(1, 2, "turn finished", "with the Context: read once"),
        Call(2, 4, "read the state; a trigger is due: queue a run", "a later turn profits"),
        Call(1, 4, "give the turn's lease back"),
        Call(1, 0, "done", "with the token account"),
    ),
)  # fmt: skip
RUN = Picture(
    title="One background run",
    lanes=(
        Lane(name="Trigger", part_of="message, sweep, operator"),
        Lane(name="Worker", part_of="queue"),
        Lane(name="Strategy", part_of="engine"),
        Lane(name="Summariser", part_of="model"),
        Lane(name="Database"),
    ),
    steps=(
        Call(0, 4, "request a run: a queued row", "a branch waits for one automatic run at most"),
        Call(0, 1, "on commit: its id as a task"),
        Call(1, 4, "claim the run", "conditional UPDATE: a second delivery finds nothing"),
        Call(1, 4, "acquire or steal the branch's lease", "heartbeats renew it"),
        Call(1, 4, "read the BranchSnapshot; publish a draft; is it still due?"),
        Call(1, 2, "plan: where is the cut?", "the newest messages decide"),
        Call(1, 4, "read the messages before the cut", "of a batch, the oldest"),
        Call(1, 4, "ask budget and circuit breaker", "only where a model is called"),
        Call(1, 2, "run the job"),
        Frame(2, 4, "for every call", (
            Call(2, 4, "cancelled? out of time? asked to stop?"),
            Call(2, 3, "summarise"),
            Call(3, 2, "answer", "too large: bisect halves"),
            Call(2, 4, "step row, before the next call starts"),
        )),
        Call(2, 1, "Outcome", "text, items read, metadata"),
        Call(1, 1, "does it make the next request smaller?"),
        Frame(1, 4, "one transaction", (
            Call(1, 4, "still the same? positions, lease, cursor", "else nothing is written"),
            Call(1, 4, "cursor · summary · links to what was read · placeholder · run"),
        )),
        Call(1, 4, "release the lease; look again", "the next batch, or who stepped aside"),
    ),
)  # fmt: skip
SEQUENCES = {"turn.svg": TURN, "run.svg": RUN}


def main() -> None:
    """Write the pictures."""
    for name, picture in SEQUENCES.items():
        (PICTURES / name).write_text(picture.svg())
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()

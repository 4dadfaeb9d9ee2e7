"""The seams of the engine: what a strategy, a cut, a trigger and a rendering have to offer.

All are pure: no database, no network, no clock but the one that is passed in. They are registered
by name (compaction.engine.registry); a profile names the ones it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from compaction.engine.parameters import Profile
from compaction.engine.types import (
    CallEstimate,
    Facts,
    Item,
    Outcome,
    Plan,
    Step,
    Summarizer,
    SummaryJob,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """What a plan depends on besides the messages and the profile.

    `keep_last_n` is what a person or a recovery asked for; it overrides the profile's cut. With
    `whole`, tool results that the model has not seen are summarised too, because nothing else makes
    the request smaller. `room` returns the tokens that the window leaves a tail at most; it may
    read from the database, so it is called by those only who need it. `window` is the model's, in
    tokens as the messages are counted; 0 where it is not known. `frame_tokens` is what each message
    takes of the room besides its words.

    `earlier` is how many messages that could be summarised stand before the given ones; only those
    who say that they plan from the tail ever see another number than 0.
    """

    room: Callable[[], int]
    keep_last_n: int | None = None
    whole: bool = False
    earlier: int = 0
    window: int = 0
    frame_tokens: int = 0


class Strategy(Protocol):
    """Makes a summary of messages: plans it, says what it costs, and runs it.

    A strategy with an attribute `plans_from_tail = True` is first asked to plan with the newest
    messages alone: `facts.earlier` says how many stand before them, which are then summarised as
    well. Where these would decide, `plan` raises MoreItemsNeeded (compaction.engine.policy.groups),
    and is asked again with more. Without the attribute it is given all messages since the last
    summary, each time: a branch with many of them takes longer to plan. plan_by_cut does all this.
    """

    @property
    def uses_summarizer(self) -> bool:
        """Whether the profile's summariser is asked.

        Where it is not, no budget or breaker is looked at, and the summariser that `run` is given
        refuses every call.
        """
        ...

    @property
    def version(self) -> str:
        """Another one whenever the same input would be summarised in another way."""
        ...

    def plan(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        """Return what to summarise and what to keep. Groups are never parted."""
        ...

    def estimate(self, job: SummaryJob, profile: Profile, limit: int | None) -> CallEstimate:
        """Return the calls that a job takes when one call reads at most `limit` tokens."""
        ...

    def run(
        self,
        job: SummaryJob,
        profile: Profile,
        summarizer: Summarizer,
        on_step: Callable[[Step], None],
    ) -> Outcome:
        """Return the summary of the job's items; raise SummaryFailed.

        `on_step` hears of every finished call before the next one starts; what it raises ends the
        run. A call that it does not hear of is stored as a step of its own, under none. What the
        outcome says is what is stored; its items are the job's, or the oldest of them.
        """
        ...


class Cut(Protocol):
    """Says where the cut falls: what is summarised and what stays verbatim.

    Like a strategy, a cut may have `plans_from_tail = True`: the decorator TailCut
    (compaction.engine.policy.cuts) sets it for a function. Other cuts are given all messages.
    """

    def __call__(self, items: Sequence[Item], profile: Profile, facts: PlanFacts) -> Plan:
        """Return the plan. An empty `summarise` means that nothing is left to do.

        Where it would part a group, the kept part grows (compaction.engine.policy.cuts.legal_plan).
        """
        ...


class Trigger(Protocol):
    """A rule that says a compaction is due. It looks at stored numbers, never at messages."""

    @property
    def reason(self) -> str:
        """The rule's name, as it is stored with runs and summaries."""
        ...

    @property
    def mode(self) -> str:
        """`inline`: before the next request; `background`: in the queue, and no request waits."""
        ...

    def is_due(self, profile: Profile, facts: Facts) -> bool:
        """Whether the rule is in force and its limit is reached."""
        ...

    def distance(self, profile: Profile, facts: Facts) -> tuple[int, int] | None:
        """Return the limit and where it stands now; None where the rule is not in force."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSummary:
    """A summary as requests hold it: its text, and the abridged history that is kept with it."""

    text: str
    abridged: str = ""


class Rendering(Protocol):
    """Says how summaries are sent.

    One that also has a method `node` (NodeRendering) is given the summaries together
    with their abridged histories and the profile; `messages` then serves what has neither.
    """

    @property
    def merges_system(self) -> bool:
        """Whether prompt and summaries become one system message."""
        ...

    def messages(self, summaries: Sequence[str]) -> list[dict[str, Any]]:
        """Return the messages that carry the summaries, oldest first.

        Each has a role (system, user, assistant) and a text as its content; a user's comes before
        an assistant's. Equal summaries give equal messages, so that a server's prompt cache holds.
        """
        ...


class NodeRendering(Rendering, Protocol):
    """A rendering that makes one node of the summaries and their abridged history."""

    def node(self, summaries: Sequence[SentSummary], profile: Profile) -> list[dict[str, Any]]:
        """Return the messages of the node, held against what those of `messages` are.

        There is one summary, or several where the newest has not taken in those before it, oldest
        first.
        """
        ...

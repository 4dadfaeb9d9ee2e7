"""What making summaries again would take, from stored sums: hardly a message is read.

A summary's messages are as many as it says, and their tokens are the difference of two stored sums
where they stand one behind the other. Only where one call is not enough, or a plug-in's strategy
wants to see them, they are read: of ours without their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from django.db.models import Count, Q, Sum

from chatapp.llm.part_tokens import attachment_tokens
from chatapp.llm.registry import ModelConfig
from chatapp.messages.parts import attachment_of
from chatapp.models import POSITION_STEP, Message
from compaction.branches.snapshot import BranchSnapshot
from compaction.convert import to_item
from compaction.engine.parameters import Profile
from compaction.engine.registry import STRATEGIES
from compaction.engine.types import Item, SummaryJob, ToolCall
from compaction.errors import CompactionError
from compaction.models import SessionSummary
from compaction.runs.strategy import parts_turn
from compaction.selectors import chain_of, continued_by
from compaction.summaries.summarising_models import summarising_model
from compaction.summaries.summarizer import input_limit

# Ends of summaries that are looked up together.
ENDS_AT_ONCE = 500
# Up to so many texts are counted; of more the sizes count that were stored with them.
COUNTED_TEXTS = 50
_LIGHT = ("pk", "role", "kind", "position", "tokens", "tool_calls", "tool_call_id", "parts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run would do: nothing was called and nothing was written."""

    messages: int
    tokens: int
    calls: int
    cost: float
    keep: int = 0
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """A model's counter that knows the tokens of some texts already.

    Its encoding is loaded for the first text that it does not know: that takes long.
    """

    model: ModelConfig
    known: Mapping[str, int]

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        found = self.known.get(text)
        return self.model.counter.count(text) if found is None else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model.counter, name)


def estimate_redos(
    summaries: Sequence[SessionSummary], snapshot: BranchSnapshot
) -> Iterator[Estimate]:
    """Yield what making each of a session's summaries again would read, call and cost.

    Raises CompactionError where the strategy cannot say.
    """
    before = _before(summaries, snapshot)
    known = {}
    if len(summaries) > COUNTED_TEXTS:
        known = {row.summary_text: row.summary_tokens for rows in before.values() for row in rows}
    terms = terms_of(snapshot, known)
    for start in range(0, len(summaries), ENDS_AT_ONCE):
        yield from priced_each(summaries[start : start + ENDS_AT_ONCE], terms, before)


def terms_of(snapshot: BranchSnapshot, known: Mapping[str, int]) -> Terms:
    """Return what is the same for all summaries of a branch; `known` are sizes of some texts."""
    profile, session = snapshot.summary_profile, snapshot.session
    model = summarising_model(session, profile)
    return Terms(
        snapshot=snapshot,
        strategy=STRATEGIES.get(profile.strategy),
        model=model,
        counter=KnownSizes(model, known),
        limit=input_limit(session, profile, model),
    )


def priced_each(
    summaries: Sequence[SessionSummary],
    terms: Terms,
    before: Mapping[Any, Sequence[SessionSummary]],
) -> Iterator[Estimate]:
    """Yield the estimates of some summaries; `before` says what they continue, where it is known.

    Raises CompactionError where the strategy cannot say.
    """
    stretches = _stretches(summaries)
    for summary in summaries:
        rows = before.get(summary.pk)
        earlier = continued_by(summary) if rows is None else rows
        text = "\n\n".join(row.summary_text for row in earlier)
        stretch = stretches.get(summary.pk) or _added_up(summary)
        yield _priced(summary, terms, stretch, previous=text)


def _before(
    summaries: Sequence[SessionSummary], snapshot: BranchSnapshot
) -> dict[Any, list[SessionSummary]]:
    """Return, of each summary, what it continues, where the chain alone tells.

    It does on a branch of its own, without fallback digests and without texts of hooks.
    """
    if snapshot.branch.parent_id is not None or len(summaries) < 2:
        return {}
    chain = chain_of(snapshot.branch)
    if any(row.is_digest or row.from_hook for row in chain):
        return {}
    return {row.pk: [older] for row, older in pairwise(chain)}


@dataclass(frozen=True, slots=True)
class _Stretch:
    """How many messages a summary was made from, and their tokens."""

    messages: int
    tokens: int


def _stretches(summaries: Sequence[SessionSummary]) -> dict[Any, _Stretch]:
    """Return the stretches whose messages stand one behind the other, by their ends' sums."""
    whole = [
        row for row in summaries if is_dense(row.covers_from, row.covers_through, row.message_count)
    ]
    ends = Q()
    by_branch: dict[Any, list[int]] = {}
    for row in whole:
        by_branch.setdefault(row.branch_id, []).extend((row.covers_from, row.covers_through))
    for branch, positions in by_branch.items():
        ends |= Q(branch=branch, position__in=positions)
    if not whole:
        return {}
    rows = Message.objects.filter(ends, kind__in=Message.SPOKEN)
    sums = {
        (branch, position): (tokens, through)
        for branch, position, tokens, through in rows.values_list(
            "branch", "position", "tokens", "tokens_through"
        )
    }
    found = {}
    for row in whole:
        first = sums.get((row.branch_id, row.covers_from))
        last = sums.get((row.branch_id, row.covers_through))
        if first is not None and last is not None:
            found[row.pk] = _Stretch(row.message_count, last[1] - first[1] + first[0])
    return found


def is_dense(first: int, last: int, messages: int) -> bool:
    """Whether there are just as many places from end to end as a summary has messages."""
    steps, rest = divmod(last - first, POSITION_STEP)
    return rest == 0 and first % POSITION_STEP == 0 and steps + 1 == messages


def _added_up(summary: SessionSummary) -> _Stretch:
    found = summary.links.aggregate(messages=Count("pk"), tokens=Sum("message__tokens"))
    return _Stretch(found["messages"], found["tokens"] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is the same for all summaries of a session."""

    snapshot: BranchSnapshot
    strategy: Any
    model: ModelConfig
    counter: Any
    limit: int | None

    @property
    def is_ours(self) -> bool:
        """Whether the strategy is built in: how it reads what fits one call is known."""
        return type(self.strategy).__module__.startswith("compaction.engine.")


def _priced(summary: SessionSummary, terms: Terms, stretch: _Stretch, *, previous: str) -> Estimate:
    limit, counter = terms.limit, terms.counter
    before = counter.count(previous) if previous else 0
    parts = parts_turn(terms.snapshot, summary.covers_through)
    job = SummaryJob(items=(), counter=counter, previous=previous, parts_turn=parts)
    fits = limit is None or before + stretch.tokens <= limit
    if terms.is_ours and fits and not parts and stretch.messages:
        # One call reads all of it, whatever the messages are.
        job = replace(job, items=(Item(id=None, role="user", tokens=stretch.tokens),))
    else:
        job = replace(job, items=tuple(_items(summary, is_light=terms.is_ours)))
    sizes = stretch.messages, stretch.tokens
    profile = terms.snapshot.summary_profile
    return priced(terms.strategy, job, profile, terms.model, limit, *sizes)


def priced(
    strategy: Any,
    job: SummaryJob,
    profile: Profile,
    model: ModelConfig,
    limit: int | None,
    messages: int,
    tokens: int,
) -> Estimate:
    """Return what a strategy says that a job takes, priced. Raises CompactionError."""
    try:
        found = strategy.estimate(job, profile, limit)
    except Exception as error:
        raise CompactionError(
            f"The strategy {profile.strategy!r} cannot say what a run would take "
            f"({type(error).__name__}: {error})."
        ) from error
    cost = model.price(prompt=found.input_tokens, completion=found.output_tokens)
    return Estimate(messages=messages, tokens=tokens, calls=found.calls, cost=cost)


def _items(summary: SessionSummary, *, is_light: bool) -> Iterator[Item]:
    """Yield the messages that a summary was made from, in order; light ones have no text."""
    rows = Message.objects.filter(summary_links__summary=summary).order_by("position")
    if not is_light:
        yield from (to_item(row) for row in rows)
        return
    for pk, role, kind, position, tokens, calls, call_id, parts in rows.values_list(
        *_LIGHT
    ).iterator(chunk_size=2_000):
        files = (attachment_of(part) for part in parts or ())
        yield Item(
            id=pk,
            role=role,
            position=position,
            tokens=tokens,
            tool_calls=tuple(ToolCall(id=one["id"], name="") for one in calls or ()),
            tool_call_id=call_id,
            unread_tokens=sum(attachment_tokens(one) for one in files if one),
            is_note=kind == Message.Kind.NOTE,
        )

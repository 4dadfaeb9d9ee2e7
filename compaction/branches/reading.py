"""What a turn reads of its branch, in as few round trips as it takes: one for where the branch
stands, and one for what a request sends of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from chatapp.compiled import compiled_read
from chatapp.llm.learned_limits import as_taught, asked_limits
from chatapp.llm.registry import UnknownModelError, get_model
from chatapp.models import Branch, Message, Session
from chatapp.round_trips import Statement, together
from chatapp.selectors import NOT_READ, asked_behind, without_pinned_system
from compaction.branches.carriers import asked_summaries, summaries_to_send
from compaction.branches.leases import asked_state, ensure_state
from compaction.branches.snapshot import BranchSnapshot
from compaction.models import CompactionState
from compaction.profiles import asked_profile, profile_of
from compaction.selectors import asked_bare

# In `derived` of a branch whose request may go out: whether the cursor stood where it did when
# the request's parts had been read.
_STILL_SO = "still_so"
# The columns of a message that sums the tokens up to it.
PLACE_AND_SUMS = ("position", "tokens", "tokens_through")


def current_snapshot(session: Session, branch: Branch | None = None) -> BranchSnapshot:
    """Return where a session's branch stands now; its state is stored then (ensure_state)."""
    branch = branch or session.branch
    asked: list[Statement[Any]] = [asked_state(branch), asked_profile(branch.pk)]
    try:
        model = get_model(session.model)
    except UnknownModelError:
        # Whoever needs to know it hears of it.
        model = None
    if model is not None:
        asked.append(asked_limits(model))
    states, profiles, *limits = together(*asked)
    state = ensure_state(branch, states)
    snapshot = BranchSnapshot(session=session, state=state, profile_row=profile_of(state, profiles))
    if model is not None:
        snapshot.take(model=as_taught(model, limits[0]))
    snapshot.derived[_STILL_SO] = False
    return snapshot


def read_request(snapshot: BranchSnapshot) -> None:
    """Read what a request sends of a branch that has no limit by messages, if nobody has yet.

    What is not the branch's own alone is read where it is needed.
    """
    rows = asked_behind(snapshot.branch, snapshot.state.cursor - 1)
    if rows is not None and not snapshot.knows("from_cursor"):
        (found,) = _with_summaries(snapshot, rows)
        snapshot.take(from_cursor=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedRows:
    """What a limit by messages lets through of a branch's own: the newest, the newest first, all
    pinned ones behind the cursor, and the place of the first one there.
    """

    newest: list[Message]
    pinned: list[Message]
    first: list[Message]


def read_limited(snapshot: BranchSnapshot, limit: int) -> LimitedRows:
    """Return the newest messages, one more than the limit, and what else is sent in any case."""
    branch, cursor = snapshot.branch.pk, snapshot.state.cursor
    asked = {
        "newest": _own_newest.asked(branch=branch, after=cursor, most=limit + 1),
        "first": _own_places.asked(branch=branch, after=cursor, most=1),
        "pinned": _own_pins.asked(branch=branch, after=cursor),
    }
    if snapshot.knows("pins_behind") and not snapshot.pins_behind:
        del asked["pinned"]
    found = dict(zip(asked, _with_summaries(snapshot, *asked.values()), strict=True))
    return LimitedRows(pinned=found.pop("pinned", []), **found)


@compiled_read
def _own_newest(*, branch: UUID, after: int) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, position__gt=after, kind__in=Message.SPOKEN)
    return without_pinned_system(rows).order_by("-position").defer(*NOT_READ)


@compiled_read
def _own_places(*, branch: UUID, after: int) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, position__gt=after, kind__in=Message.SPOKEN)
    return rows.order_by("position").only(*PLACE_AND_SUMS)


@compiled_read
def _own_pins(*, branch: UUID, after: int) -> QuerySet[Message]:
    rows = Message.objects.filter(branch=branch, position__gt=after, kind__in=Message.SPOKEN)
    return rows.filter(pinned=True).order_by("position")


def _with_summaries(snapshot: BranchSnapshot, *asked: Statement[Any]) -> list[Any]:
    """Return what was asked for; read the summaries with it, if nobody has yet.

    Where a request may go out, the look whether the cursor is still where it was stands behind
    them, so that no summary that was restored meanwhile is missing.
    """
    branch, state, knows = snapshot.branch, snapshot.state, snapshot.knows
    more: dict[str, Statement[Any]] = {}
    if not knows("summaries") and state.cursor:
        written = asked_summaries(branch, snapshot.profile, through=state.cursor)
        more |= {} if written is None else {"summaries": written}
    if not state.cursor and not knows("old_placeholders"):
        # Without a summary only what older programs left can stand for messages.
        bare = asked_bare(branch, snapshot.profile.summary_limit)
        more |= {} if bare is None else {"bare": bare}
    if state.cursor and _STILL_SO in snapshot.derived and (knows("summaries") or more):
        more[_STILL_SO] = _reaches.asked(branch=state.pk, cursor=state.cursor, most=1)
    found = together(*asked, *more.values())
    told = dict(zip(more, found[len(asked) :], strict=True))
    if "summaries" in told:
        through, written = state.cursor, told["summaries"]
        sent = summaries_to_send(branch, snapshot.profile, through=through, written=written)
        snapshot.take(summaries=sent)
    if "bare" in told:
        snapshot.take(old_placeholders=told["bare"][::-1])
    if _STILL_SO in more:
        snapshot.derived[_STILL_SO] = bool(told[_STILL_SO])
    return found[: len(asked)]


def is_still_so(snapshot: BranchSnapshot) -> bool:
    """Whether the cursor stands where it stood when the request was begun."""
    state = snapshot.state
    # Before the beginning it cannot be.
    if state._state.adding or not state.cursor or snapshot.derived.get(_STILL_SO):
        return True
    return _reaches.first(branch=state.pk, cursor=state.cursor) is not None


@compiled_read
def _reaches(*, branch: UUID, cursor: int) -> QuerySet[CompactionState, UUID]:
    rows = CompactionState.objects.filter(pk=branch, cursor__gte=cursor)
    return rows.values_list("pk", flat=True)

"""The cut that keeps no fewer than the most recent tokens, and where it falls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import cut_checkpoint, keep_no_fewer_tokens
from compaction.engine.policy.groups import LegalCuts, MoreItemsNeeded, legal_cuts
from compaction.engine.protocols import PlanFacts
from compaction.engine.types import Item, ToolCall


def items_of(shape: str) -> tuple[Item, ...]:
    """Return items of "u500 a800 t3000": roles with tokens; a call stands before its results."""
    made: list[Item] = []
    tokens = [(part[0], int(part[1:])) for part in shape.split()]
    for number, (letter, size) in enumerate(tokens):
        role = {"u": "user", "a": "assistant", "t": "tool"}[letter]
        results = 0
        while (
            letter == "a"
            and tokens[number + 1 + results : number + 2 + results]
            and (tokens[number + 1 + results][0] == "t")
        ):
            results += 1
        calls = tuple(
            ToolCall(id=f"c{number + 1 + i}", name="look", arguments="{}") for i in range(results)
        )
        made.append(
            Item(
                id=number,
                role=role,
                tokens=size,
                tool_calls=calls,
                tool_call_id=f"c{number}" if role == "tool" else "",
            )
        )
    return tuple(made)


LONG = "u500 a800 u1200 a3000 u5000 a8000 u4000 a2000"


@pytest.mark.parametrize(
    ("shape", "tokens", "kept_from", "kept"),
    [
        (LONG, 20_000, 3, 22_000),
        (LONG, 19_000, 4, 19_000),
        (LONG, 19_001, 3, 22_000),
        ("u500 a800 u1200 a10 t3000 u5000 a8000 u4000 a2000", 20_000, 5, 19_000),
        ("u500 a800 a1200 t3000 u5000 a8000 u4000 a2000", 20_000, 4, 19_000),
        ("u10 a10 t30000", 20_000, 1, 30_010),
        ("u10 a10 t30000 a10", 20_000, 3, 10),
        ("u10 a10 t100 t100 a10 u50", 120, 4, 60),
        ("u10 a10 u10 a10", 20, 2, 20),
        ("u5 a5 u21000", 20_000, 2, 21_000),
        ("u10 a30 t10 a25000", 20_000, 3, 25_000),
        ("u10 a10 u10 a10", 50_000, 0, 40),
        ("u10 a10 u10 a10", 40, 0, 40),
    ],
)
def test_it_falls_at_the_first_legal_place_behind_the_number(shape, tokens, kept_from, kept):
    items = items_of(shape)
    plan = keep_no_fewer_tokens(items, tokens)
    assert [item.id for item in plan.summarise] == list(range(kept_from))
    assert (*plan.summarise, *plan.keep) == items
    assert sum(item.tokens for item in plan.keep) == kept


def facts(**changes) -> PlanFacts:
    return PlanFacts(**({"room": lambda: 10**9} | changes))


def planned(shape: str, tokens: int, **changes):
    return cut_checkpoint(items_of(shape), Profile(keep_recent_tokens=tokens), facts(**changes))


@pytest.mark.parametrize(
    ("shape", "tokens", "kept_from"),
    [
        # The open question counts, and is kept whatever its size.
        ("u10 a10 t100 t100 a10 u50", 120, 4),
        ("u5 a5 u21000", 20_000, 2),
        # A group right before the question is summarised whole when it crosses the number.
        ("u10 a10 t30000 u50", 20_000, 3),
        ("u10 a10 u50 u60", 100, 2),
    ],
)
def test_the_open_question_is_kept_and_counts(shape, tokens, kept_from):
    assert len(planned(shape, tokens).summarise) == kept_from


def test_results_that_the_model_has_not_seen_are_kept():
    assert len(planned("u10 a10 u10 a10 t30000", 5).summarise) == 2
    assert len(planned("u10 a10 u10 a10 t30000", 5, whole=True).summarise) == 3


def test_the_window_may_have_less_room_than_the_profile_asks_for():
    assert len(planned(LONG, 20_000).summarise) == 3
    assert len(planned(LONG, 20_000, room=lambda: 22_000).summarise) == 3
    assert len(planned(LONG, 20_000, room=lambda: 21_999).summarise) == 4
    assert len(planned(LONG, 20_000, room=lambda: 6_000).summarise) == 6


def test_no_more_is_read_than_the_window_has_room_for():
    # The number is further back than what was read, and the room ends within it.
    whole = items_of("u10 a10 " * 40)
    few = {"room": lambda: 100, "frame_tokens": 4}
    profile = Profile(keep_recent_tokens=500)
    part = cut_checkpoint(whole[-20:], profile, facts(**few, earlier=60))
    assert part.keep == cut_checkpoint(whole, profile, facts(**few)).keep == whole[-7:]
    with pytest.raises(MoreItemsNeeded):
        cut_checkpoint(whole[-20:], profile, facts(earlier=60))
    # Whether anything behind the number is legal decides what is kept beside a question.
    results = items_of("u10 a10 u10 a10 " + "t10 " * 30 + "u10")
    with pytest.raises(MoreItemsNeeded):
        cut_checkpoint(results[-20:], profile, facts(**few, earlier=15))


SHAPES = st.lists(
    st.tuples(st.sampled_from("uuaat"), st.integers(min_value=0, max_value=60)), max_size=24
).map(lambda parts: " ".join(f"{letter}{size}" for letter, size in parts))


@given(shape=SHAPES, tokens=st.integers(min_value=1, max_value=400), followed=st.booleans())
def test_it_parts_nothing_and_loses_nothing(shape, tokens, followed):
    items = items_of(shape)
    plan = keep_no_fewer_tokens(items, tokens, is_followed=followed)
    assert (*plan.summarise, *plan.keep) == items
    cut = len(plan.summarise)
    assert cut in {0, len(items), *legal_cuts(items)}
    if cut == len(items):
        assert followed or not items
    if plan.keep and cut > 0:
        assert plan.keep[0].role != "tool"
    # One message less would be too little, unless a group was in the way.
    whole_from = LegalCuts.of(items).first(cut, len(items) - 1)
    if 0 < cut < len(items) and whole_from == cut + 1:
        assert sum(item.tokens for item in items[cut + 1 :]) < tokens


@given(shape=SHAPES, tokens=st.integers(min_value=1, max_value=400), read=st.integers(1, 24))
def test_the_end_alone_tells_the_same_cut_or_asks_for_more(shape, tokens, read):
    items = items_of(shape)
    earlier = max(0, len(items) - read)
    profile = Profile(keep_recent_tokens=tokens)
    whole = cut_checkpoint(items, profile, facts())
    try:
        part = cut_checkpoint(items[earlier:], profile, facts(earlier=earlier))
    except MoreItemsNeeded:
        assert earlier
        return
    assert part.keep == whole.keep


@pytest.mark.parametrize(
    ("share", "window", "kept"),
    [(0.25, 40_000, 11_000), (0.25, 80_001, 20_200), (0.0, 40_000, 20_200), (0.25, 0, 20_200)],
)
def test_of_a_small_window_no_more_than_a_share_is_asked_for(share, window, kept):
    profile = Profile(cut="checkpoint", keep_recent_tokens=20_000, keep_recent_share=share)
    items = items_of("u500 a800 u1200 a3000 u5000 a8000 u1000 a2000")
    facts = PlanFacts(room=lambda: 10**6, window=window)
    assert sum(item.tokens for item in cut_checkpoint(items, profile, facts).keep) == kept

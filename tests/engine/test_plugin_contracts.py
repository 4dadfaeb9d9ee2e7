"""What plug-ins are held to: plans that part no group, renderings that servers take, registries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.parameters import Profile
from compaction.engine.policy.cuts import (
    cut_last_n,
    cut_recent_tokens,
    cut_tail_size,
    legal_plan,
)
from compaction.engine.policy.groups import legal_cuts
from compaction.engine.protocols import PlanFacts
from compaction.engine.registry import Registry, UnknownNameError
from compaction.engine.rendering import SYSTEM, rendered
from compaction.engine.types import Plan
from tests.engine.strategies import conversations
from tests.fakes.summarizers import plain, shaped


def facts(*, whole: bool) -> PlanFacts:
    return PlanFacts(room=lambda: 10**9, whole=whole)


def parted(items, start: int) -> Plan:
    return Plan(summarise=tuple(items[:start]), keep=tuple(items[start:]))


def kept(shape: str, start: int, *, whole: bool = False) -> list[int]:
    items = shaped(shape)
    return [item.id for item in legal_plan(items, parted(items, start), facts(whole=whole)).keep]


# --- plans ----------------------------------------------------------------------------------------


def test_a_legal_plan_stays_as_it_is():
    assert kept("uauaua", 4) == [5, 6]
    assert kept("u1taua", 4) == [5, 6]


def test_a_plan_that_parts_a_call_from_its_result_keeps_both():
    assert kept("ua1tau", 3) == [3, 4, 5, 6]


def test_a_plan_that_parts_the_results_of_one_message_keeps_all():
    assert kept("ua2ttau", 4) == [3, 4, 5, 6, 7]


def test_a_plan_that_keeps_nothing_keeps_the_open_question():
    assert kept("uauau", 5) == [5]
    assert kept("uaua", 4) == []


def test_a_plan_that_keeps_nothing_keeps_open_calls_and_unseen_results():
    assert kept("uau2t", 5) == [3, 4, 5]
    assert kept("uau2t", 5, whole=True) == [4, 5]
    assert kept("uau1t", 5) == [3, 4, 5]
    assert kept("uau1t", 5, whole=True) == []


def test_a_call_that_nobody_answered_stays_with_what_was_not_seen_behind_it():
    # The second call has its result, which the model has not answered; the first has none.
    assert kept("ua1u1t", 6) == [3, 4, 5, 6]


@pytest.mark.parametrize("plan", [parted(plain(3), 1), parted(plain(5)[::-1], 2)])
def test_a_plan_of_other_messages_is_refused(plan):
    with pytest.raises(ValueError, match="does not divide"):
        legal_plan(plain(4), plan, facts(whole=False))


@given(conversations(), st.integers(0, 40), st.booleans())
def test_no_plan_parts_a_group_and_the_kept_part_only_grows(items, start, whole):
    plan = parted(items, start)
    found = legal_plan(items, plan, facts(whole=whole))
    assert [*found.summarise, *found.keep] == items
    assert len(found.summarise) in [0, *legal_cuts(items), len(items)]
    assert len(found.keep) >= len(plan.keep)


@given(
    conversations(),
    st.sampled_from([cut_last_n, cut_recent_tokens, cut_tail_size]),
    st.integers(0, 12),
    st.booleans(),
)
def test_legal_plans_of_our_own_cuts_stay_as_they_are(items, cut, size, whole):
    profile = Profile(keep_last_n=size, tail_keep_size=size, keep_recent_tokens=size * 30 + 1)
    plan = cut(items, profile, PlanFacts(room=lambda: 200, whole=whole))
    if len(plan.summarise) in [0, *legal_cuts(items), len(items)]:
        assert legal_plan(items, plan, facts(whole=whole)) == plan


# --- renderings -----------------------------------------------------------------------------------


class Saying:
    merges_system = False

    def __init__(self, *messages) -> None:
        self.said = list(messages)

    def messages(self, summaries):
        return self.said


def message(role: str, content="text", **more) -> dict:
    return {"role": role, "content": content, **more}


@pytest.mark.parametrize(
    "messages",
    [
        [message("user")],
        [message("user"), message("assistant")],
        [message("system"), message("user"), message("assistant"), message("assistant")],
    ],
)
def test_what_servers_take_is_rendered(messages):
    assert rendered(Saying(*messages), ["a summary"]) == messages


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "returned no message"),
        ([message("assistant"), message("user")], "an assistant's message before any user's"),
        ([message("system"), message("assistant")], "an assistant's message before any user's"),
        ([message("tool")], "a message of the role 'tool'"),
        ([message("user", "  ")], "a message without a text"),
        ([message("user", None)], "a message without a text"),
        ([message("assistant", tool_calls=[])], "something else than messages of a role and"),
        (["text"], "something else than messages of a role and"),
    ],
)
def test_what_servers_refuse_is_not_rendered(messages, fault):
    with pytest.raises(ValueError, match=fault):
        rendered(Saying(*messages), ["a summary"])


def test_without_summaries_no_rendering_is_asked():
    assert rendered(Saying(), []) == []


def test_the_built_in_rendering_sends_a_message_a_summary():
    assert [one["role"] for one in rendered(SYSTEM, ["a", "b"])] == ["system", "system"]


# --- registries -----------------------------------------------------------------------------------


class Good:
    pass


def registry(**paths: str) -> Registry:
    found = Registry("toy", paths, fault_of=lambda thing: "" if isinstance(thing, Good) else "lies")
    found.use_plugins({})
    return found


def test_a_class_is_made_once():
    toys = registry(good=f"{__name__}.Good")
    assert isinstance(toys.get("good"), Good)
    assert toys.get("good") is toys.get("good")


def test_an_unknown_name_is_told_with_those_that_are_known():
    with pytest.raises(UnknownNameError, match=r"There is no toy 'bad'. Known: good\."):
        registry(good=f"{__name__}.Good").get("bad")


def test_names_that_change_while_all_are_loaded_leave_no_old_list_behind():
    """As where another thread changes the setting; here the first object that is looked at does."""

    def fault_of(thing: object) -> str:
        if not toys.has_plugins:
            toys.use_plugins({"more": f"{__name__}.Good"})
        return ""

    toys = Registry("toy", {"good": f"{__name__}.Good"}, fault_of=fault_of)
    toys.all()
    assert len(toys.all()) == 2


def test_what_cannot_be_used_is_left_out_of_all():
    toys = registry(good=f"{__name__}.Good", gone="no.such.thing", wrong=f"{__name__}.kept")
    assert len(toys.all()) == 1
    assert toys.problem_with("good") == ""
    assert "cannot be loaded from 'no.such.thing': ModuleNotFoundError" in (
        toys.problem_with("gone")
    )
    assert toys.problem_with("wrong") == (f"The toy 'wrong' cannot be used: {__name__}.kept lies.")


def test_plug_ins_take_the_place_of_those_before_and_of_built_in_ones():
    toys = registry(good="no.such.thing")
    before = toys.version
    toys.use_plugins({"good": f"{__name__}.Good", "more": f"{__name__}.Good"})
    assert list(toys) == ["good", "more"]
    assert isinstance(toys.get("good"), Good)
    assert toys.version > before
    toys.use_plugins({})
    assert list(toys) == ["good"]
    assert not toys.has_plugins


def test_what_can_be_used_is_told_anew_after_plug_ins_have_changed():
    toys = registry(good=f"{__name__}.Good")
    assert len(toys.all()) == 1
    toys.use_plugins({"more": f"{__name__}.Good"})
    assert len(toys.all()) == 2
    toys.use_plugins({})
    assert len(toys.all()) == 1

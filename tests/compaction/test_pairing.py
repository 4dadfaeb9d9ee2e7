"""Requests and cuts agree on which call a result answers, whatever ids repeat.

The engine knows nothing of chatapp, so the rule stands in both; this holds them together.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatapp.messages.pairing import answers
from compaction.engine.policy.groups import answered_calls
from compaction.engine.types import Item, ToolCall

IDS = st.sampled_from(["a", "b", "c", ""])
CALLS = st.lists(IDS, min_size=1, max_size=3).map(lambda ids: ("assistant", ids))
RESULTS = IDS.map(lambda call_id: ("tool", [call_id]))
TALK = st.sampled_from(["user", "assistant"]).map(lambda role: (role, []))


def as_wire(role: str, ids: list[str]) -> dict:
    if role == "tool":
        return {"role": role, "content": "r", "tool_call_id": ids[0]}
    calls = [{"id": one, "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": role, "content": "m"} | ({"tool_calls": calls} if calls else {})


def as_item(position: int, role: str, ids: list[str]) -> Item:
    if role == "tool":
        return Item(id=position, role=role, text="r", position=position, tool_call_id=ids[0])
    calls = tuple(ToolCall(id=one, name="f") for one in ids)
    return Item(id=position, role=role, text="m", position=position, tool_calls=calls)


@given(st.lists(st.one_of(CALLS, RESULTS, TALK), max_size=14))
def test_both_find_the_same_caller(conversation):
    wires = [as_wire(role, ids) for role, ids in conversation]
    items = [as_item(n, role, ids) for n, (role, ids) in enumerate(conversation)]
    assert {result: place[0] for result, place in answers(wires).items()} == answered_calls(items)

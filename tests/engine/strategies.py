"""Conversations for property tests: parallel calls, repeated ids, late and missing results."""

from __future__ import annotations

from hypothesis import strategies as st

from compaction.engine.types import Item, ToolCall

_IDS = st.sampled_from(["a", "b", "c"])


@st.composite
def conversations(draw: st.DrawFn, *, max_size: int = 40) -> list[Item]:
    """Return items whose ids and positions are 1, 2, …"""
    items: list[Item] = []
    for number in range(1, draw(st.integers(0, max_size)) + 1):
        role = draw(st.sampled_from(["user", "assistant", "tool", "tool", "calls"]))
        tokens = draw(st.integers(0, 60))
        # No more is drawn than it takes: the sizes of a conversation are as uneven as its tokens.
        common = {"id": number, "position": number, "tokens": tokens, "chars": 31 * tokens % 61}
        if role == "calls":
            ids = draw(st.lists(_IDS, min_size=1, max_size=3))
            calls = tuple(ToolCall(id=one, name="run") for one in ids)
            items.append(Item(role="assistant", tool_calls=calls, **common))
        elif role == "tool":
            items.append(Item(role="tool", text="r", tool_call_id=draw(_IDS), **common))
        else:
            items.append(Item(role=role, text=f"{role} {number}", **common))
    return items

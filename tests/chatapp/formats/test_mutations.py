"""Exports with anything anywhere in them: each is read soundly, or refused with a sentence."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from chatapp.formats import UnknownFormatError, parse
from tests.facts import seed

from .test_chatgpt import CODE, export, node
from .test_librechat import export as librechat
from .test_librechat import message as librechat_message
from .test_librechat import talk
from .test_oasst import node as oasst_node
from .test_oasst import tree as oasst_tree
from .test_open_webui import CALL, RESULT, SAID, THOUGHT, chat, message
from .test_registry import is_sound
from .test_swe_agent import RUN

THOUGHTS = {"content_type": "thoughts", "thoughts": [{"content": "H"}]}
OUTPUT = {"content_type": "execution_output", "text": "1"}
IMAGE = {"type": "image", "url": "data:image/png;base64,AA"}
USAGE = {"prompt_tokens": 1}
EXPORTS: dict[str, Any] = {
    "chatgpt": [
        export(
            node("q", None, "user", "Why?"),
            node("t", "q", "assistant", THOUGHTS),
            node("c", "t", "assistant", CODE, recipient="python"),
            node("r", "c", "tool", OUTPUT, name="python"),
            node("a", "r", "assistant", "So.", metadata={"finish_details": {"type": "stop"}}),
            node("b", "q", "assistant", {"content_type": "x", "parts": ["a", {"text": "b"}]}),
        )
    ],
    "librechat": json.loads(
        librechat(
            librechat_message("q", None, "Why?", files=[{"filename": "f"}]),
            librechat_message(
                "a",
                "q",
                content=[
                    {"type": "think", "think": "Hm."},
                    {"type": "text", "text": {"value": "So."}},
                    {"type": "tool_call", "tool_call": {"id": "t", "name": "n", "output": "o"}},
                ],
                children=[librechat_message("r", "a", "Oh.", children=[])],
            ),
            options={"model": "m", "promptPrefix": "Be brief."},
        )
    ),
    "chatbot_ui": {"version": 4, "history": [talk(), talk(id=2)], "folders": []},
    "swe_agent": RUN,
    "open_webui": {
        "id": "row",
        "chat": chat(
            message("q", None, "Why?", files=[IMAGE]),
            message("a", "q", "So.", output=[THOUGHT, CALL, RESULT, SAID], usage=USAGE),
            message("b", "q", "Thus.", model="m", error={"content": "x"}),
        ),
    },
    "oasst": json.loads(
        oasst_tree(oasst_node("q", "Why?", oasst_node("a", "So.", oasst_node("r", "Oh."), rank=0)))
    ),
}
JUNK = (
    None, 5, -1, 1e300, 10**30, True, "", "x", "all", "\ud800", "\x00", [], {}, [[]], [None], [{}],
    ["a"], {"a": 1}, {"id": "a", "parent": "a"},
)  # fmt: skip
MUTATIONS = 400


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a value, with each of its indices or keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if _is_list(value) else ()
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def mutate(value: Any, chance: random.Random) -> None:
    """Delete, double or replace something somewhere."""
    holder, key = chance.choice(places(value))
    what = chance.choice(["delete", "double", "replace", "replace"])
    if what == "delete":
        del holder[key]
    elif what == "double" and isinstance(holder, dict):
        holder[chance.choice(list(holder))] = copy.deepcopy(holder[key])
    else:
        holder[key] = copy.deepcopy(chance.choice(JUNK))


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_before_any_mutation_is_sound(name: str) -> None:
    parsed = parse(json.dumps(EXPORTS[name]))

    assert parsed.format == name
    assert is_sound(parsed)


@pytest.mark.parametrize("name", EXPORTS)
def test_no_mutation_breaks_a_reader(name: str) -> None:
    chance = random.Random(f"{seed()} {name}")
    for _ in range(MUTATIONS):
        value = copy.deepcopy(EXPORTS[name])
        for _ in range(chance.randint(1, 5)):
            if places(value):
                mutate(value, chance)
        content = json.dumps(value)
        try:
            assert is_sound(parse(content)), content
        except UnknownFormatError as refused:
            assert str(refused)

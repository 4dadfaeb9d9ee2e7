"""Texts of realistic length for made-up conversations, cut from the samples that come along."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatapp.llm.tokens import ModelTokenCounter, count_message

SAMPLES = Path(__file__).resolve().parent.parent.parent / "chatapp" / "samples"
_SENTENCE = re.compile(r"(?<=[.!?。！？\n])\s*")
TOOLS = ("read_file", "search", "run_tests", "edit_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A text and what it costs as a message's only content."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """Ready texts by who says them; counted once, used many times."""

    asked: list[Piece]
    said: list[Piece]
    found: list[Piece]
    summaries: list[Piece]

    @classmethod
    def make(
        cls, counter: ModelTokenCounter, chance: random.Random, *, size: int = 1500
    ) -> Phrases:
        """Return `size` texts of each kind. Lengths are log-normal: many short ones, few long."""
        sources = [_sentences(path) for path in sorted(SAMPLES.glob("*.json"))]

        def pieces(mean_chars: float, spread: float, count: int = size) -> list[Piece]:
            found = []
            for _ in range(count):
                wanted = min(12_000, int(chance.lognormvariate(mean_chars, spread)))
                text = _text(chance.choice(sources), wanted, chance)
                found.append(Piece(text=text, tokens=counter.count(text)))
            return found

        return cls(
            asked=pieces(4.8, 0.8),
            said=pieces(5.9, 0.8),
            found=pieces(6.2, 1.0),
            summaries=[_summary(piece, counter) for piece in pieces(6.9, 0.4, 300)],
        )


def _sentences(path: Path) -> list[str]:
    messages = json.loads(path.read_text())["messages"]
    texts = [message["content"] for message in messages if isinstance(message.get("content"), str)]
    return [part for text in texts for part in _SENTENCE.split(text) if part.strip()]


def _text(sentences: list[str], chars: int, chance: random.Random) -> str:
    text = chance.choice(sentences)
    while len(text) < chars:
        text += " " + chance.choice(sentences)
    return text[: max(chars, 8)]


def _summary(piece: Piece, counter: ModelTokenCounter) -> Piece:
    third = len(piece.text) // 3
    text = (
        f"## Requests\n{piece.text[:third]}\n\n## Decisions\n{piece.text[third : 2 * third]}"
        f"\n\n## Last state\n{piece.text[2 * third :]}"
    )
    return Piece(text=text, tokens=counter.count(text))


def turn_columns(
    phrases: Phrases, counter: ModelTokenCounter, chance: random.Random
) -> list[dict[str, Any]]:
    """Return the columns of one turn's messages: question, perhaps calls and results, answer."""
    turn = [_spoken("user", chance.choice(phrases.asked))]
    for _ in range(_rounds(chance)):
        turn += _called(phrases, counter, chance)
    return [*turn, _spoken("assistant", chance.choice(phrases.said))]


def _rounds(chance: random.Random) -> int:
    """Return how often tools are asked: not at all in two of three turns."""
    return 0 if chance.random() < 0.67 else chance.choice((1, 1, 2, 3))


def _spoken(role: str, piece: Piece) -> dict[str, Any]:
    return {"role": role, "content": piece.text, "tokens": piece.tokens}


def _called(
    phrases: Phrases, counter: ModelTokenCounter, chance: random.Random
) -> list[dict[str, Any]]:
    call_id = f"call_{chance.getrandbits(48):012x}"
    arguments = json.dumps({"path": f"src/module_{chance.randrange(400)}.py"})
    function = {"name": chance.choice(TOOLS), "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    wire = {"role": "assistant", "content": None, "tool_calls": calls}
    result = _spoken("tool", chance.choice(phrases.found))
    return [
        wire | {"tokens": count_message(wire, counter)},
        result | {"tool_call_id": call_id, "tool_name": function["name"]},
    ]

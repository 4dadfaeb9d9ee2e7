"""What a summariser's input takes, from numbers that are known: no message is counted twice.

A message's tokens were counted when it was stored. Around it stand a mark, a number, a role, and
the names and ids of its calls; each of its lines but the first is indented. What is new (the
instruction, thoughts, a result that was cut for the summariser) is counted, and texts that come
back with each call are counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from chatapp.context.assembly import text_tokens
from chatapp.llm.registry import ModelConfig
from chatapp.llm.tokens import count_message
from chatapp.messages.wire import WireMessage
from compaction.engine.strategies.prompts import (
    ATTENTION,
    LAST_LINE,
    MISSING,
    message_number,
)
from compaction.engine.types import Item, SummaryRequest

# A tag with its number, twice; a block's mark, number, role and the blank line before it. Rounded
# up from what the encodings of the field make of them.
FENCE_TOKENS = 28
BLOCK_TOKENS = 15
CALL_TOKENS = 14
# Ids and names are made of letters and digits: a token has two or three of them.
CHARACTERS_A_TOKEN_OF_IDS = 2


def transcript_tokens(request: SummaryRequest, instruction: str, model: ModelConfig) -> int:
    """Return the tokens of a call that sends messages as a transcript.

    The stored tokens have to be the model's own way of counting.
    """
    texts = [request.previous, *request.texts]
    said = [(ATTENTION, request.instructions), (MISSING, "\n".join(request.missing))]
    texts += [title + text for title, text in said if text]
    sections = sum(map(bool, texts)) + bool(request.items or not request.texts)
    return (
        text_tokens(model, instruction)
        + text_tokens(model, LAST_LINE)
        + sum(text_tokens(model, text) for text in texts)
        + FENCE_TOKENS * (sections + bool(request.kept))
        + sum(block_tokens(item, model) for item in (*request.items, *request.kept))
    )


def block_tokens(item: Item, model: ModelConfig) -> int:
    """Return the tokens of a message in a transcript, with all that stands around it."""
    ids = len(item.tool_name) + len(item.tool_call_id)
    ids += sum(len(call.id) for call in item.tool_calls)
    frame = BLOCK_TOKENS + CALL_TOKENS * len(item.tool_calls) + ids // CHARACTERS_A_TOKEN_OF_IDS
    thoughts = model.counter.count(item.thinking) if item.thinking else 0
    return frame + _words(item, model) + item.text.count("\n") + thoughts


def _words(item: Item, model: ModelConfig) -> int:
    """Return the tokens of what a message says; of a result that was cut, of what is left of it."""
    was_cut = item.role == "tool" and len(item.text) < item.chars
    return model.counter.count(item.text) if was_cut else item.read_tokens


def conversation_tokens(
    messages: Sequence[WireMessage],
    places: Sequence[str],
    items: Iterable[Item],
    model: ModelConfig,
) -> int:
    """Return the tokens of a call that sends the conversation itself, without its tools.

    `places` say where the first of the messages stand in the conversation; empty for what is not
    stored: the prompt, the summaries, the instruction behind all.
    """
    stored = {message_number(item.position): item.tokens for item in items}
    placed = chain(places, repeat(""))
    return sum(
        stored[place] if place in stored else count_message(message, model.counter)
        for message, place in zip(messages, placed, strict=False)
    )

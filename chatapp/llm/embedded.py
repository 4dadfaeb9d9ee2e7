"""The model without a server: it looks the question up in the conversation and says what it is.

It needs no key, no download and no network, so that everything around a model can be tried. It has
a window and refuses larger requests in a server's words, so that recovery can be tried too.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise

from chatapp.llm.errors import ErrorKind, ModelError, from_body
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event
from chatapp.llm.tokens import count_message
from chatapp.messages.wire import WireMessage, text_of

MAX_QUOTES = 4
MAX_QUOTE_CHARS = 300
NOTICE = (
    "(No language model is connected: this answer only quotes the conversation. "
    "Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, to connect one.)"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_WORD = re.compile(r"[^\W_]{3,}|\d+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_COMMON_WORDS = (
    "the and for are was were that this with you your have has had what when where which who how "
    "why can could would should does did not but from about there their they them then than been "
    "will just into our out any all please tell know say said"
)
_COMMON = frozenset(_COMMON_WORDS.split())


class EmbeddedModel:
    """Answers with sentences of the conversation that share words with the question."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def complete(self, request: ModelRequest, on_event: OnEvent = ignore_event) -> Reply:
        """Return quotes and a line that says what answered; raise ModelError above the window."""
        size = sum(count_message(message, self.config.counter) for message in request.messages)
        size += self.config.request_frames(len(request.messages))
        if request.tools:
            tools = json.dumps(list(request.tools), ensure_ascii=False)
            size += self.config.counter.count(tools)
        limit = self.config.context_window
        room = min(request.max_output or self.config.max_output, limit // 4)
        if size > limit - room:
            raise from_body(
                {
                    "error": {
                        "message": f"This model's maximum context length is {limit} tokens. "
                        f"However, your messages resulted in {size} tokens and {room} are "
                        "kept for the answer.",
                        "type": "invalid_request_error",
                        "code": "context_length_exceeded",
                    }
                },
                status=400,
            )
        text = "\n".join([*_answer(request), "", NOTICE])
        if request.stream:
            for piece in re.findall(r"\S+\s*|\s+", text):
                if request.cancelled():
                    raise ModelError(ErrorKind.CANCELLED)
                on_event("delta", {"text": piece})
        completion = self.config.counter.count(text)
        return Reply(
            text=text,
            usage={
                "prompt_tokens": size,
                "completion_tokens": completion,
                "total_tokens": size + completion,
            },
            response_id=f"embedded-{uuid.uuid4().hex}",
            model=self.config.name,
        )


def _answer(request: ModelRequest) -> Iterator[str]:
    messages = request.messages
    question = next((text_of(m["content"]) for m in reversed(messages) if m["role"] == "user"), "")
    quotes = _quotes(messages, _terms(question), question)
    if not quotes:
        yield "The conversation so far says nothing about this."
        return
    yield "What the conversation says about this:"
    for index, role, sentence in quotes:
        place = request.places[index] if request.places else str(index + 1)
        where = f"{place}, {role}" if place else role
        yield f"- [{where}] “{sentence}”"


def _quotes(
    messages: Sequence[WireMessage], terms: frozenset[str], question: str
) -> list[tuple[int, str, str]]:
    """Return the best sentences in the order of the conversation, with the message's index."""
    found: list[tuple[float, int, str, str]] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        text = text_of(message.get("content"))
        if not terms or text == question or text.rstrip().endswith(NOTICE):
            continue
        for sentence in _SENTENCE_END.split(text):
            folded = " ".join(sentence.split()).lstrip("-* ")[:MAX_QUOTE_CHARS]
            shared = len(terms & _terms(folded))
            if shared and folded not in seen:
                seen.add(folded)
                found.append((shared - len(folded) / 1000, index, message["role"], folded))
    best = sorted(found, key=lambda quote: (-quote[0], -quote[1]))[:MAX_QUOTES]
    return [(index, role, text) for _, index, role, text in sorted(best, key=lambda q: q[1])]


def _terms(text: str) -> frozenset[str]:
    """Return the words that count, lower-cased; for Chinese, pairs of neighbouring characters."""
    words = {word.lower() for word in _WORD.findall(text) if not _CJK.search(word)} - _COMMON
    letters = _CJK.findall(text)
    return frozenset(words | {a + b for a, b in pairwise(letters)})

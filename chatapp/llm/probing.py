"""Six small questions to a model's server: what it takes, what it had to be taught, what that cost.

What a refusal teaches is remembered as in a turn, so that the first real turn is right at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chatapp.database import release_connection
from chatapp.llm.adaptations import Adaptation
from chatapp.llm.asking import ask
from chatapp.llm.errors import ModelError
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest
from chatapp.messages.wire import WireMessage

SHORT_ANSWER_TOKENS = 64
SECONDS_PER_QUESTION = 60
# With less time than this left, a question is not asked.
LEAST_SECONDS = 1.0
NOT_ASKED = "It was not asked: the questions before it took all the time."
KEY_HIDDEN = "[key]"
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question: what it finds out, and the request's fields."""

    title: str
    messages: tuple[WireMessage, ...]
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What came of one question. `sentence` is empty where the server answered.

    `changes` are what had to be changed first; `tokens` are those that the server reports, of
    prompt and answer together. What `was_asked` not, nobody knows.
    """

    title: str
    sentence: str = ""
    was_asked: bool = True
    changes: tuple[Adaptation, ...] = ()
    calls_tool: bool = False
    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0


def _user(text: str) -> WireMessage:
    return {"role": "user", "content": text}


_CALL: WireMessage = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"word": "palimpsest"}'},
        }
    ],
}
_RESULT: WireMessage = {"role": "tool", "tool_call_id": "call_1", "content": "A used parchment."}

QUESTIONS = (
    Question(title="a short answer", messages=(_user("Answer with the word yes."),), fields={}),
    Question(
        title="a temperature",
        messages=(_user("Answer with the word yes."),),
        fields={"temperature": 0.2},
    ),
    Question(
        title="system prompt, two questions in a row",
        messages=(
            {"role": "system", "content": "Be brief."},
            _user("What is two and two?"),
            _user("And three and three?"),
        ),
        fields={},
    ),
    Question(
        title="a tool to call",
        messages=(_user("Look the word palimpsest up with the tool."),),
        fields={"tools": (TOOL,)},
    ),
    Question(
        title="an earlier call, no tools any more",
        messages=(_user("Look the word up."), _CALL, _RESULT, _user("So what is it?")),
        fields={},
    ),
    Question(
        title="a streamed answer",
        messages=(_user("Answer with the word yes."),),
        fields={"stream": True},
    ),
)


def probe(
    model: ModelConfig, *, each: float = SECONDS_PER_QUESTION, together: float = math.inf
) -> Iterator[ProbeResult]:
    """Yield what comes of each question, one after the other; each costs a few hundred tokens.

    A question takes `each` seconds at most, all of them `together`.
    """
    until = time.monotonic() + together
    for question in QUESTIONS:
        seconds = min(each, until - time.monotonic())
        if seconds < LEAST_SECONDS:
            yield ProbeResult(title=question.title, sentence=NOT_ASKED, was_asked=False)
        else:
            yield _asked(with_learned_limits(model), question, seconds)


def _asked(model: ModelConfig, question: Question, seconds: float) -> ProbeResult:
    changes: list[Adaptation] = []
    release_connection()
    started = time.monotonic()
    request = ModelRequest(
        messages=question.messages,
        max_output=min(model.max_output, SHORT_ANSWER_TOKENS),
        deadline=started + seconds,
        **question.fields,
    )
    try:
        reply = ask(model, request, lambda change, error: changes.append(change))
    except ModelError as error:
        said = f" It says: {error.detail[:300]}" if error.detail else ""
        sentence, usage, calls = without_key(f"{error.sentence}{said}", model), None, False
    else:
        sentence, usage, calls = "", reply.usage, bool(reply.tool_calls)
    reported = usage or {}
    return ProbeResult(
        title=question.title,
        sentence=sentence,
        changes=tuple(changes),
        calls_tool=calls,
        seconds=time.monotonic() - started,
        tokens=(reported.get("prompt_tokens") or 0) + (reported.get("completion_tokens") or 0),
        cost=model.cost(usage),
    )


def without_key(text: str, model: ModelConfig) -> str:
    """Return what a server said without the key, which some repeat in their refusals."""
    return text.replace(model.api_key, KEY_HIDDEN) if model.api_key else text


def answered(results: list[ProbeResult]) -> str:
    """Return how many questions were answered and what that cost, as a sentence."""
    tokens, cost = sum(one.tokens for one in results), sum(one.cost for one in results)
    count = sum(not one.sentence for one in results)
    price = f", {cost:.6f} by the prices that are set" if cost else ""
    return f"{count} of {len(QUESTIONS)} questions answered; {tokens:,} tokens{price}."

"""A model inside the process that answers at once, so that only our own work is measured."""

from __future__ import annotations

from typing import Any

from chatapp.llm.registry import ModelConfig
from chatapp.llm.requests import ModelRequest, OnEvent, Reply, ignore_event

ANSWER = "That is done: the report is in build/report.html and all 214 checks are green. " * 3
# Of the benchmark's messages as they go out, by the encoding that counts them.
CHARACTERS_A_TOKEN = 3.0
# Windows are large, so that one call takes in whatever a benchmark compacts.
WINDOW = 50_000_000


class InstantModel:
    """Answers chats and summaries alike with one short text and plausible usage."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def complete(self, request: ModelRequest, on_event: OnEvent = ignore_event) -> Reply:
        """Return the answer without having read anything but how long it is.

        A report that has nothing to do with the request would be a warning of each turn.
        """
        read = sum(len(str(message)) for message in request.messages)
        asked = max(1, round(read / CHARACTERS_A_TOKEN))
        usage = {"prompt_tokens": asked, "completion_tokens": 50, "total_tokens": asked + 50}
        return Reply(text=ANSWER, usage=usage, model=self.config.name, response_id="instant")


def models() -> dict[str, dict[str, Any]]:
    """Return CHATAPP's MODELS with this model as `default`."""
    return {
        "default": {
            "BACKEND": "tests.bench.instant.InstantModel",
            "NAME": "instant",
            "CONTEXT_WINDOW": WINDOW,
            "MAX_OUTPUT": 1024,
            "ENCODING": "o200k_base",
        }
    }

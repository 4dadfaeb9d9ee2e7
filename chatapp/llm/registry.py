"""The models a session can name: alias -> backend, window, limits, prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from chatapp.conf import backend_path, chatapp_settings
from chatapp.llm.capabilities import capabilities_of
from chatapp.llm.tokens import ModelTokenCounter, counter_for, encoding_for_model
from chatapp.llm.usage import billed

if TYPE_CHECKING:
    from chatapp.llm.requests import ChatModel


EMBEDDED_BACKEND = "chatapp.llm.embedded.EmbeddedModel"
MESSAGE_FRAME_TOKENS = 4
"""What servers count for a message besides its words: its role and the marks around it."""


class UnknownModelError(LookupError):
    """The alias is not in CHATAPP["MODELS"]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Money per million tokens, in whatever currency the operator thinks in."""

    input: float = 0.0
    cached: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One entry of CHATAPP["MODELS"]. Window and limits are tokens.

    `single_leading_system`: the server accepts exactly one system message, so the prompt and the
    summaries are merged into one. `keeps_responses`: the server keeps its answers, and a session
    over the Responses API may go on from the last one instead of sending everything again.
    `tokens_per_count`: how many of its tokens one of ours is, and `adaptations`: the codes of what
    its requests need (adaptations.py), as far as its entry, its family, and its refusals say (see
    learned_limits.py). `reasoning_effort`: the lowest that it takes, empty where it has none.
    `message_frame_tokens`: what the server counts for a message besides its words.
    """

    alias: str
    backend: str
    name: str
    context_window: int
    max_output: int = 4096
    encoding: str = ""
    prices: Prices = field(default_factory=Prices)
    single_leading_system: bool = False
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    keeps_responses: bool = False
    tokens_per_count: float = 1.0
    adaptations: frozenset[str] = frozenset()
    reasoning_effort: str = ""
    message_frame_tokens: int = MESSAGE_FRAME_TOKENS

    @property
    def scale(self) -> float:
        """What counted tokens are multiplied with to be compared with the window; at least 1."""
        return max(1.0, self.tokens_per_count)

    @property
    def is_embedded(self) -> bool:
        """Whether this is the model without a server, which can quote but not write."""
        return self.backend == EMBEDDED_BACKEND

    @property
    def counter(self) -> ModelTokenCounter:
        """The token counter that fits this model (see llm/tokens.py)."""
        return counter_for(
            self.encoding or encoding_for_model(self.name),
            mode=chatapp_settings.token_counter,
            cache_dir=chatapp_settings.encodings_dir,
        )

    def request_frames(self, messages: int) -> int:
        """Return the tokens of the frames in a request of so many messages.

        The answer's beginning is framed, too: it stands at the end of every request.
        """
        return self.message_frame_tokens * (messages + 1)

    def connect(self) -> ChatModel:
        """Return the backend that answers for this model."""
        backend: ChatModel = import_string(self.backend)(self)
        return backend

    def cost(self, usage: Mapping[str, Any] | None) -> float:
        """Return the price of one call; cached tokens are part of the prompt's, not on top."""
        tokens = billed(usage)
        return self.price(
            prompt=tokens["prompt_tokens"],
            completion=tokens["completion_tokens"],
            cached=tokens["cached_tokens"],
        )

    def price(self, *, prompt: int, completion: int, cached: int = 0) -> float:
        """Return the price of so many tokens; the cached ones are part of the prompt's."""
        cached_price = self.prices.cached or self.prices.input
        return (
            (prompt - cached) * self.prices.input
            + cached * cached_price
            + completion * self.prices.output
        ) / 1_000_000


@lru_cache(maxsize=1)
def all_models() -> Mapping[str, ModelConfig]:
    """Return every configured model by alias."""
    return {alias: _read(alias, entry) for alias, entry in chatapp_settings.models.items()}


def _read(alias: str, entry: Mapping[str, Any]) -> ModelConfig:
    arguments = {key.lower(): value for key, value in entry.items()}
    prices = {key.lower(): value for key, value in arguments.pop("prices", {}).items()}
    if "backend" in arguments:
        arguments["backend"] = backend_path(arguments["backend"])
    capabilities = capabilities_of(arguments.get("name", ""), arguments.pop("capabilities", None))
    arguments["adaptations"] = frozenset(capabilities.codes())
    arguments["reasoning_effort"] = capabilities.reasoning_effort or ""
    return ModelConfig(alias=alias, prices=Prices(**prices), **arguments)


def get_model(alias: str) -> ModelConfig:
    """Return the model of an alias; raise UnknownModelError with the aliases that exist."""
    models = all_models()
    if alias not in models:
        raise UnknownModelError(
            f"No model is called {alias!r} here. CHATAPP['MODELS'] has: {', '.join(models)}."
        )
    return models[alias]


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "CHATAPP":
        all_models.cache_clear()


setting_changed.connect(_reload, dispatch_uid="chatapp.llm.registry")

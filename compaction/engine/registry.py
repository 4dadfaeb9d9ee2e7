"""What a profile names and a plug-in may add: strategies, cuts, triggers and renderings.

A registry maps a name to a dotted path, which is imported when it is first used. Plug-ins add names
of their own in the COMPACTION setting (STRATEGIES, CUTS, TRIGGERS, RENDERINGS); a built-in name
can be replaced in the same way. See docs/architecture.md, "The strategy seam".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from compaction.engine.protocols import Cut, Rendering, Strategy, Trigger

Entry = TypeVar("Entry")


class UnknownNameError(LookupError):
    """A profile names something that no registry holds, or whose path cannot be imported."""


class Registry(Generic[Entry]):
    """Names and what they stand for. Iterating yields the names, so it can serve as choices."""

    def __init__(self, noun: str, built_in: Mapping[str, str]) -> None:
        self.noun = noun
        self._built_in = dict(built_in)
        self._added: dict[str, str] = {}
        self._loaded: dict[str, Entry] = {}

    def use_plugins(self, paths: Mapping[str, str]) -> None:
        """Put these names beside the built-in ones, in place of what was added before."""
        self._added = dict(paths)
        self._loaded.clear()

    def get(self, name: str) -> Entry:
        """Return what a name stands for; a class is called without arguments.

        Raises UnknownNameError.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    @property
    def has_plugins(self) -> bool:
        """Whether a setting added names."""
        return bool(self._added)

    def all(self) -> list[Entry]:
        """Return everything that is registered, the built-in ones first."""
        return [self.get(name) for name in self]

    def _load(self, name: str) -> Entry:
        path = self._paths().get(name)
        if path is None:
            known = ", ".join(self)
            raise UnknownNameError(f"There is no {self.noun} {name!r}. Known: {known}.")
        module, _, attribute = path.rpartition(".")
        try:
            found: Any = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise UnknownNameError(
                f"The {self.noun} {name!r} cannot be loaded from {path!r}: {error}."
            ) from error
        return cast(Entry, found() if isinstance(found, type) else found)

    def _paths(self) -> dict[str, str]:
        return self._built_in | self._added

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths())

    def __contains__(self, name: object) -> bool:
        return name in self._paths()

    def __len__(self) -> int:
        return len(self._paths())


STRATEGIES: Registry[Strategy] = Registry(
    "strategy",
    {
        "bisect": "compaction.engine.strategies.bisect.BisectStrategy",
        "digest": "compaction.engine.strategies.digest.DigestStrategy",
    },
)
CUTS: Registry[Cut] = Registry(
    "cut",
    {
        "last_n": "compaction.engine.policy.cuts.cut_last_n",
        "recent_tokens": "compaction.engine.policy.cuts.cut_recent_tokens",
        "tail_size": "compaction.engine.policy.cuts.cut_tail_size",
    },
)
# In the order in which they are asked; what is due in the background comes after all others.
TRIGGERS: Registry[Trigger] = Registry(
    "trigger",
    {
        "hard_limit": "compaction.engine.policy.triggers.HardLimit",
        "window": "compaction.engine.policy.triggers.WindowNearlyFull",
        "message_limit": "compaction.engine.policy.triggers.MessageLimit",
        "token_limit": "compaction.engine.policy.triggers.TokenLimit",
        "message_window": "compaction.engine.policy.triggers.MessageWindow",
        "maximum_age": "compaction.engine.policy.triggers.MaximumAge",
        "ahead": "compaction.engine.policy.triggers.AheadOfNeed",
    },
)
RENDERINGS: Registry[Rendering] = Registry(
    "rendering",
    {
        "system": "compaction.engine.rendering.SYSTEM",
        "merged_system": "compaction.engine.rendering.MERGED_SYSTEM",
        "user_tags": "compaction.engine.rendering.USER_TAGS",
    },
)

REGISTRIES: dict[str, Registry[Any]] = {
    "STRATEGIES": STRATEGIES,
    "CUTS": CUTS,
    "TRIGGERS": TRIGGERS,
    "RENDERINGS": RENDERINGS,
}

"""What a profile names and a plug-in may add: strategies, cuts, triggers and renderings.

A registry maps a name to a dotted path, which is imported when it is first used. Plug-ins add names
of their own in the COMPACTION setting (STRATEGIES, CUTS, TRIGGERS, RENDERINGS); a built-in name
can be replaced in the same way. See docs/architecture.md, "The strategy seam".

What cannot be loaded, or lacks a part of its contract, is never handed out: a profile that names it
is refused, a trigger is left out, and compaction.E008 says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from compaction.engine.protocols import Cut, Rendering, Strategy, Trigger

Entry = TypeVar("Entry")


class UnknownNameError(LookupError):
    """No registry holds the name, its path cannot be imported, or the object lacks something."""


class Registry(Generic[Entry]):
    """Names and what they stand for. Iterating yields the names, so it can serve as choices.

    `fault_of` says what an object lacks, as words that follow its path; empty where it has all.
    """

    def __init__(
        self, noun: str, built_in: Mapping[str, str], *, fault_of: Callable[[Any], str]
    ) -> None:
        self.noun = noun
        # Grows with every change, so that what was derived from the names can be told to be old.
        self.version = 0
        self._built_in = dict(built_in)
        self._fault_of = fault_of
        self._added: dict[str, str] = {}
        self._loaded: dict[str, Entry | UnknownNameError] = {}
        self._usable: tuple[int, list[Entry]] = (-1, [])

    def use_plugins(self, paths: Mapping[str, str]) -> None:
        """Put these names beside the built-in ones, in place of what was added before."""
        self._added = dict(paths)
        self._loaded = {}
        self.version += 1

    def get(self, name: str) -> Entry:
        """Return what a name stands for; a class is called without arguments.

        Raises UnknownNameError.
        """
        loaded = self._loaded
        if name not in loaded:
            loaded[name] = self._load(name)
        found = loaded[name]
        if isinstance(found, UnknownNameError):
            # A new one each time: a raised exception keeps the frames that it went through.
            raise UnknownNameError(str(found))
        return found

    def problem_with(self, name: str) -> str:
        """Return why a name cannot be used, as a sentence; empty where it can."""
        try:
            self.get(name)
        except UnknownNameError as error:
            return str(error)
        return ""

    @property
    def added(self) -> list[str]:
        """The names that a setting added."""
        return list(self._added)

    @property
    def has_plugins(self) -> bool:
        """Whether a setting added names."""
        return bool(self._added)

    def all(self) -> Sequence[Entry]:
        """Return everything that can be used, the built-in ones first."""
        version, usable = self._usable
        if version != self.version:
            # The names' version stands beside what was made of them: other threads may change the
            # names meanwhile, and what belongs to the former ones is then made anew.
            version = self.version
            usable = [self.get(name) for name in self if not self.problem_with(name)]
            self._usable = version, usable
        return usable

    def _load(self, name: str) -> Entry | UnknownNameError:
        path = self._paths().get(name)
        if path is None:
            known = ", ".join(self)
            return UnknownNameError(f"There is no {self.noun} {name!r}. Known: {known}.")
        module, _, attribute = str(path).rpartition(".")
        try:
            found: Any = getattr(import_module(module), attribute)
            found = found() if isinstance(found, type) else found
        # Whatever a plug-in's module does when it is imported must not stop the program.
        except Exception as error:
            return UnknownNameError(
                f"The {self.noun} {name!r} cannot be loaded from {path!r}: "
                f"{type(error).__name__}: {error}."
            )
        if fault := self._fault_of(found):
            return UnknownNameError(f"The {self.noun} {name!r} cannot be used: {path} {fault}.")
        return cast(Entry, found)

    def _paths(self) -> dict[str, str]:
        return self._built_in | self._added

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths())

    def __contains__(self, name: object) -> bool:
        return name in self._paths()

    def __len__(self) -> int:
        return len(self._paths())


def _lacks(found: Any, *, methods: tuple[str, ...] = (), values: tuple[str, ...] = ()) -> str:
    missing = [f"{name}()" for name in methods if not callable(getattr(found, name, None))]
    missing += [name for name in values if not hasattr(found, name)]
    return f"has no {', '.join(missing)}" if missing else ""


def _strategy_fault(found: Any) -> str:
    values = ("uses_summarizer", "version")
    return _lacks(found, methods=("plan", "estimate", "run"), values=values)


def _cut_fault(found: Any) -> str:
    return "" if callable(found) else "is not callable"


def _trigger_fault(found: Any) -> str:
    if missing := _lacks(found, methods=("is_due", "distance"), values=("reason", "mode")):
        return missing
    if found.mode not in MODES:
        return f"has the mode {found.mode!r}; known: {', '.join(MODES)}"
    if not isinstance(found.reason, str) or not 0 < len(found.reason) <= LONGEST_REASON:
        return f"has no reason of 1 to {LONGEST_REASON} characters"
    return ""


def _rendering_fault(found: Any) -> str:
    return _lacks(found, methods=("messages",), values=("merges_system",))


MODES = ("inline", "background")
# As long as the columns that store it.
LONGEST_REASON = 40
STRATEGIES: Registry[Strategy] = Registry(
    "strategy",
    {
        "bisect": "compaction.engine.strategies.bisect.BisectStrategy",
        "iterative": "compaction.engine.strategies.iterative.IterativeStrategy",
        "digest": "compaction.engine.strategies.digest.DigestStrategy",
    },
    fault_of=_strategy_fault,
)
CUTS: Registry[Cut] = Registry(
    "cut",
    {
        "last_n": "compaction.engine.policy.cuts.cut_last_n",
        "recent_tokens": "compaction.engine.policy.cuts.cut_recent_tokens",
        "checkpoint": "compaction.engine.policy.cuts.cut_checkpoint",
        "tail_size": "compaction.engine.policy.cuts.cut_tail_size",
        "tail_chars": "compaction.engine.policy.cuts.cut_tail_chars",
    },
    fault_of=_cut_fault,
)
# In the order in which they are asked; what is due in the background comes after all others.
TRIGGERS: Registry[Trigger] = Registry(
    "trigger",
    {
        "hard_limit": "compaction.engine.policy.triggers.HardLimit",
        "version": "compaction.engine.policy.triggers.VersionPassedOver",
        "window": "compaction.engine.policy.triggers.WindowNearlyFull",
        "message_limit": "compaction.engine.policy.triggers.MessageLimit",
        "token_limit": "compaction.engine.policy.triggers.TokenLimit",
        "history_size": "compaction.engine.policy.triggers.HistorySize",
        "message_window": "compaction.engine.policy.triggers.MessageWindow",
        "maximum_age": "compaction.engine.policy.triggers.MaximumAge",
        "ahead": "compaction.engine.policy.triggers.AheadOfNeed",
        "cache_expiring": "compaction.engine.policy.triggers.CacheExpiring",
    },
    fault_of=_trigger_fault,
)
RENDERINGS: Registry[Rendering] = Registry(
    "rendering",
    {
        "system": "compaction.engine.rendering.SYSTEM",
        "merged_system": "compaction.engine.rendering.MERGED_SYSTEM",
        "user_tags": "compaction.engine.rendering.USER_TAGS",
        "node": "compaction.engine.rendering.NODE",
    },
    fault_of=_rendering_fault,
)

REGISTRIES: dict[str, Registry[Any]] = {
    "STRATEGIES": STRATEGIES,
    "CUTS": CUTS,
    "TRIGGERS": TRIGGERS,
    "RENDERINGS": RENDERINGS,
}

"""Hooks: what a project adds to compaction, asked before a summary, a branch's summary, a request.

`COMPACTION["HOOKS"]` lists dotted paths to classes, each with one or more of `before_compact`,
`before_branch_summary` and `before_request`. They are made without arguments and asked in order,
each for `COMPACTION["HOOK_SECONDS"]` at most, with no transaction, lock or connection of ours open.
What they are given is frozen and holds no rows; what they answer is checked by whoever asked.

How to write one, with an example that a test runs: docs/hooks.md.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import import_string

from chatapp.database import release_connection
from chatapp.formatting import plural
from compaction.conf import compaction_settings

logger = logging.getLogger(__name__)
BEFORE_COMPACT, BEFORE_BRANCH = "before_compact", "before_branch_summary"
BEFORE_REQUEST = "before_request"
# Names that coding agents call the hook of a branch's summary by.
_ALSO_FOUND_AS: Mapping[str, tuple[str, ...]] = {
    BEFORE_BRANCH: ("session_before_tree", "session_before_fork"),
}
_NAMES = (BEFORE_COMPACT, BEFORE_BRANCH, BEFORE_REQUEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMessage:
    """A message as a hook sees it. `tool_calls` are (name, arguments as sent) in order."""

    id: str
    role: str
    text: str
    tokens: int
    tool_calls: tuple[tuple[str, str], ...] = ()
    tool_name: str = ""
    is_note: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactPayload:
    """A compaction that is about to be made.

    `messages` are those that would be summarised, oldest first; of a turn that the cut parts,
    `turn_prefix` are the last of them. `kept` are the newest messages where they follow at once;
    `first_kept` is the id of the first message behind `messages`, None where nothing follows.
    `previous_summary` is the text that the summary continues, `previous_details` what a hook stored
    with it. `will_retry`: a request that was refused as too large waits for it.
    """

    session: str
    branch: str
    run: str
    trigger: str
    reason: str
    profile: str
    messages: tuple[HookMessage, ...]
    first_kept: str | None
    tokens_before: int
    kept: tuple[HookMessage, ...] = ()
    turn_prefix: tuple[HookMessage, ...] = ()
    previous_summary: str = ""
    previous_details: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""
    will_retry: bool = False

    @property
    def is_split_turn(self) -> bool:
        """Whether the cut falls inside a turn."""
        return bool(self.turn_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPayload:
    """A switch to another branch.

    `messages` are those that only the branch that is left has, as far as a summary may read them,
    oldest first; `common` is the id of the last message that both share, None where they share
    none. `wants_summary` says whether the person asked for one.
    """

    session: str
    from_branch: str
    to_branch: str
    messages: tuple[HookMessage, ...]
    common: str | None = None
    run: str | None = None
    wants_summary: bool = False
    instructions: str = ""
    replaces_instructions: bool = False
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a request is about: whose, with which model, and how large by our count, in tokens."""

    session: str
    branch: str
    model: str
    tokens: int
    window: int
    reserve: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """What was about to happen does not; the reason, a sentence, is what people read."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A summary that a hook wrote: no model is asked.

    `first_kept` moves the cut: the id of the first message that stays, one of the payload's or None
    for where it is. `tokens_before` overrides what the request measured. `details` are stored with
    the summary, and come back with the next payload; nobody else reads them.
    """

    summary: str
    first_kept: str | None = None
    tokens_before: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAnswer:
    """What a hook changes of a branch's summary; None leaves it.

    With `summary` no model is asked, where the person wanted a summary.
    """

    summary: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    instructions: str | None = None
    replaces_instructions: bool | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the hooks said together: the last answer, whose it is, and a sentence for each fault."""

    answer: Any = None
    hook: str = ""
    faults: tuple[str, ...] = ()


def ask(name: str, payload: Any, *, answers: tuple[type, ...]) -> Asked:
    """Return what the hooks answer to a payload.

    They are asked in their order. The last answer counts, and Cancel ends the asking. What raises,
    takes too long or is none of `answers` is a fault, and the next hook is asked.
    """
    found, faults = Asked(), list[str]()
    for path, hook in hooks_for(name):
        try:
            answer = _in_time(hook, _own_copy(payload))
            if answer is not None and not isinstance(answer, (Cancel, *answers)):
                expected = ", ".join(one.__name__ for one in (Cancel, *answers))
                raise TypeError(f"it returned {type(answer).__name__}, not None, {expected}")
        except Exception as error:
            faults.append(fault_of(path, name, error))
            continue
        if answer is not None:
            found = Asked(answer=answer, hook=path)
        if isinstance(answer, Cancel):
            break
    return replace(found, faults=tuple(faults))


def _own_copy(payload: Any) -> Any:
    """Return a payload of which no other hook, and none of ours, holds what can be changed."""
    if not isinstance(payload, CompactPayload):
        return payload
    return replace(payload, previous_details=copy.deepcopy(payload.previous_details))


def ask_about_request(
    messages: Sequence[Mapping[str, Any]],
    facts: RequestFacts,
    accept: Callable[[Sequence[Any]], list[Any]],
) -> Asked:
    """Return the messages that the hooks make of a request's, each on what the one before made.

    `accept` returns an answer as it can be sent, or raises ValueError with a sentence: then what
    was before stays, and that is a fault. The answer is None where no hook changed anything.
    """
    found, faults = Asked(), list[str]()
    current = list(messages)
    for path, hook in hooks_for(BEFORE_REQUEST):
        try:
            answer = _in_time(hook, copy.deepcopy(current), facts)
            if answer is None:
                continue
            if isinstance(answer, str) or not isinstance(answer, Sequence):
                raise TypeError(f"it returned {type(answer).__name__}, not None or messages")
            current = accept(answer)
        except Exception as error:
            faults.append(fault_of(path, BEFORE_REQUEST, error))
            continue
        found = Asked(answer=current, hook=path)
    return replace(found, faults=tuple(faults))


def fault_of(path: str, name: str, error: Exception) -> str:
    """Return what went wrong with a hook as a sentence."""
    if isinstance(error, TimeoutError | ValueError | TypeError):
        reason = str(error).rstrip(".")
        return f"The hook {path} ({name}) was passed over: {reason}."
    return f"The hook {path} ({name}) failed and was passed over ({type(error).__name__}: {error})."


def hooks_for(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the paths of the hooks of a kind with what is to be called, in their order."""
    for path, hook in _loaded(tuple(compaction_settings.hooks)):
        for known in (name, *_ALSO_FOUND_AS.get(name, ())):
            if callable(found := getattr(hook, known, None)):
                yield path, found
                break


def has_hooks(name: str) -> bool:
    """Whether anybody would be asked."""
    return any(True for _ in hooks_for(name))


def problems() -> list[str]:
    """Return what is wrong with the setting, a sentence for each path that cannot be used."""
    return [found for path in compaction_settings.hooks if (found := _made(path)[1])]


@lru_cache(maxsize=4)
def _loaded(paths: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return the hooks that can be used; a check names the others (compaction.E010)."""
    made = [(path, *_made(path)) for path in paths]
    for _, _, problem in made:
        if problem:
            logger.error("%s It is left out.", problem)
    return [(path, hook) for path, hook, problem in made if not problem]


def _made(path: str) -> tuple[Any, str]:
    """Return a hook's object, or None and why there is none."""
    try:
        hook = import_string(path)()
    except Exception as error:
        return None, f"The hook {path!r} cannot be loaded: {type(error).__name__}: {error}."
    known = (*_NAMES, *(one for names in _ALSO_FOUND_AS.values() for one in names))
    if not any(callable(getattr(hook, name, None)) for name in known):
        return None, f"The hook {path!r} has none of {', '.join(_NAMES)}."
    return hook, ""


def _in_time(hook: Callable[..., Any], *given: Any) -> Any:
    """Return what a hook returns; raise what it raises, or TimeoutError.

    It runs in a thread of its own: one that never returns is left behind, and nobody waits for it.
    """
    release_connection()
    answers: list[Any] = []
    raised: list[Exception] = []

    def work() -> None:
        try:
            answers.append(hook(*given))
        except Exception as error:
            raised.append(error)
        except BaseException as error:
            raised.append(RuntimeError(f"it raised {type(error).__name__}"))
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, name="hook", daemon=True)
    thread.start()
    thread.join(compaction_settings.hook_seconds)
    if raised:
        raise raised[0]
    if thread.is_alive() or not answers:
        raise TimeoutError(
            f"it took longer than {plural(compaction_settings.hook_seconds, 'second')} "
            "(COMPACTION_HOOK_SECONDS)"
        )
    return answers[0]


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "COMPACTION":
        _loaded.cache_clear()


setting_changed.connect(_forget, dispatch_uid="compaction.hooks")

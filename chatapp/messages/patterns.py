"""Regular expressions that are compiled when somebody first looks for something with them.

Some hundred patterns stand in modules that every process imports; compiling them all takes a fifth
of a second, and a command or a page uses a few of them. What is written here is a pattern like any
other: its methods are those of `re.Pattern`.

    _WORDS = lazy_pattern(r"\\w+")
    _WORDS.findall(text)

A pattern that cannot be compiled is found by a test that compiles them all.
"""

from __future__ import annotations

import re
from typing import Any, cast
from weakref import WeakSet

_MADE: WeakSet[LazyPattern]


class LazyPattern:
    """A pattern that is compiled at the first look at one of its methods.

    What was looked up once stays in the object, so that further calls cost what they cost without.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self._flags = flags
        _MADE.add(self)

    def __getattr__(self, name: str) -> Any:
        # Of two threads that are the first at once, both find the same: `re` keeps what it made.
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self.pattern, self._flags), name)
        self.__dict__[name] = found
        return found

    def __repr__(self) -> str:
        return f"lazy_pattern({self.pattern!r})"


_MADE = WeakSet()


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is used; for constants of modules."""
    return cast(re.Pattern[str], LazyPattern(pattern, flags))


def compile_all() -> int:
    """Compile every pattern that was made so far; return how many. For tests, and before forks.

    Raises re.error for one that is none.
    """
    made = list(_MADE)
    for pattern in made:
        _ = cast(re.Pattern[str], pattern).flags
    return len(made)

"""Which sessions a profile leaves alone: by the kind of client that talks, and by its version.

Both stand in a session's metadata, where anything may stand: what cannot be read keeps no session
from being compacted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from compaction.engine.parameters import Profile

BOT_TYPE, CLIENT_VERSION = "bot_type", "client_version"
# Numbers with dots between; what follows them (-beta, +build) says nothing of the order.
_VERSION = re.compile(r"\s*v?(\d{1,9}(?:\.\d{1,9}){0,9})(?:[-+ ].*)?\s*", re.ASCII | re.DOTALL)


def gate_of(profile: Profile, metadata: Any) -> str:
    """Return why a session is compacted by no rule, as a sentence; empty where rules count."""
    if not isinstance(metadata, Mapping):
        return ""
    kind = _word(metadata.get(BOT_TYPE))
    if kind and kind in excluded_types(profile):
        return (
            f"No rule compacts this session: its {BOT_TYPE} is {kind!r}, which the profile leaves "
            "out (excluded_bot_types)."
        )
    least, version = version_of(profile.min_client_version), metadata.get(CLIENT_VERSION)
    found = version_of(version)
    if least and found and _is_older(found, least):
        return (
            f"No rule compacts this session: its {CLIENT_VERSION} {_word(version)!r} is older than "
            f"{profile.min_client_version!r} (min_client_version)."
        )
    return ""


def excluded_types(profile: Profile) -> frozenset[str]:
    """Return the kinds of clients that a profile leaves out."""
    return frozenset(filter(None, map(str.strip, profile.excluded_bot_types.split(","))))


def version_of(value: Any) -> tuple[int, ...]:
    """Return a version's numbers; empty where it has none that can be read."""
    found = _VERSION.fullmatch(_word(value))
    return tuple(map(int, found[1].split("."))) if found else ()


def _is_older(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a version comes before another, number by number: 3.9 before 3.10, 3 with 3.0."""
    for mine, theirs in zip_longest(one, other, fillvalue=0):
        if mine != theirs:
            return mine < theirs
    return False


def _word(value: Any) -> str:
    """Return a word or a number as text: JSON's 1 is the "1" of a list of words."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    # Python refuses to write numbers of thousands of digits.
    return "" if isinstance(value, int) and value.bit_length() > 64 else str(value).strip()[:200]

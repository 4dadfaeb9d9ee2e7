"""Facts of many shapes, drawn anew: for tests, chaos and benchmarks.

What is fitted to one shape of marker measures nothing. Seeds come from PALIMPSEST_SEED, or from
chance; whoever draws prints them.
"""

from __future__ import annotations

import os
import random
import string
from collections.abc import Callable
from dataclasses import dataclass

_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
_FIRST = ("Ilse", "Tarek", "Ximena", "Duong", "Priya", "Anselm", "Noor", "Matteo", "Freya", "Kwame")
_LAST = ("Okafor", "Marchetti", "Lindqvist", "Haddad", "Novak", "Brennan", "Sato", "Quiroga")
_MONTHS = ("March", "April", "June", "July", "September", "October", "November")
_WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "glade", "heron", "iris", "jade")
_TITLES = ("The Quiet Lighthouse", "Letters to Maren", "A Field of Salt", "The Ninth Ferry")


def seed() -> int:
    """Return the seed of this run: PALIMPSEST_SEED, or one by chance."""
    given = os.environ.get("PALIMPSEST_SEED", "")
    return int(given) if given.isdigit() else random.SystemRandom().randrange(1_000_000)


def _text(chance: random.Random, letters: str, length: int) -> str:
    return "".join(chance.choice(letters) for _ in range(length))


def _hyphened(chance: random.Random) -> str:
    return f"{_text(chance, _UPPER, 2)}-{_text(chance, _DIGITS, 4)}"


def _digits(chance: random.Random) -> str:
    return chance.choice("123456789") + _text(chance, _DIGITS, chance.randint(5, 8))


def _hexadecimal(chance: random.Random) -> str:
    return (
        _text(chance, "abcdef", 2) + _text(chance, "0123456789abcdef", 8) + chance.choice(_DIGITS)
    )


def _snake(chance: random.Random) -> str:
    return f"{chance.choice(_WORDS)}_{chance.choice(_WORDS)}_{chance.randint(10, 99)}"


def _version(chance: random.Random) -> str:
    return f"v{chance.randint(1, 9)}.{chance.randint(0, 30)}.{chance.randint(0, 99)}"


def _phone(chance: random.Random) -> str:
    return f"0{_text(chance, _DIGITS, 3)}-{_text(chance, _DIGITS, 3)}-{_text(chance, _DIGITS, 4)}"


def _mail(chance: random.Random) -> str:
    return f"{chance.choice(_WORDS)}.{_text(chance, _LOWER, 4)}@{chance.choice(_WORDS)}.example"


def _path(chance: random.Random) -> str:
    return f"{chance.choice(_WORDS)}/{_text(chance, _LOWER, 5)}/{chance.choice(_WORDS)}.toml"


def _date(chance: random.Random) -> str:
    return f"{chance.randint(1, 28)} {chance.choice(_MONTHS)} {chance.randint(2030, 2059)}"


def _amount(chance: random.Random) -> str:
    return f"{chance.randint(11, 989)}.{_text(chance, _DIGITS, 2)} EUR"


def _address(chance: random.Random) -> str:
    return (
        ".".join(str(chance.randint(11, 250)) for _ in range(4)) + f":{chance.randint(2000, 9999)}"
    )


def _name(chance: random.Random) -> str:
    return f"{chance.choice(_FIRST)} {chance.choice(_LAST)}-{chance.choice(_LAST)}"


def _base32(chance: random.Random) -> str:
    return _text(chance, _LOWER + _UPPER, 3) + _text(chance, _DIGITS, 2) + _text(chance, _UPPER, 4)


def _quoted(chance: random.Random) -> str:
    return f"{chance.choice(_TITLES)} {_text(chance, 'IVX', 3)}"


_DRAWN: dict[str, Callable[[random.Random], str]] = {
    "letters-digits": _hyphened,
    "digits": _digits,
    "hexadecimal": _hexadecimal,
    "snake_case_42": _snake,
    "version": _version,
    "phone": _phone,
    "mail": _mail,
    "path": _path,
    "date": _date,
    "amount": _amount,
    "address:port": _address,
    "name": _name,
    "mixed case": _base32,
    "title": _quoted,
}
SHAPES = tuple(_DRAWN)

_TOPICS = (
    "parcel", "locker", "pump", "invoice", "tenant", "sensor", "permit", "gallery", "antenna", "valve",
    "ticket", "warehouse", "contract", "laptop", "greenhouse", "projector", "elevator", "freezer",
)  # fmt: skip
_PHRASES = (
    "The {topic} belongs to {value}.",
    "For the {topic} note {value}, please.",
    "We registered the {topic} under {value} last week.",
    "{value} is what stands on the {topic}.",
    "By the way, the {topic} goes with {value} from now on.",
    "I wrote down {value} for the {topic} of my aunt.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFact:
    """A value of some shape in a sentence that says what it is about."""

    shape: str
    value: str
    topic: str
    sentence: str


def draw_fact(chance: random.Random, *, shape: str | None = None) -> DrawnFact:
    """Return a fact of a shape, or of any."""
    shape = shape or chance.choice(SHAPES)
    value, topic = _DRAWN[shape](chance), chance.choice(_TOPICS)
    sentence = chance.choice(_PHRASES).format(value=value, topic=topic)
    return DrawnFact(shape=shape, value=value, topic=topic, sentence=sentence)

"""Facts of many shapes, drawn anew: for tests, chaos and benchmarks.

What is fitted to one shape of marker measures nothing. The seed is PALIMPSEST_SEED, or a number by
chance; pytest prints it, and so does whoever draws elsewhere.
"""

from __future__ import annotations

import os
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

SEED_VARIABLE = "PALIMPSEST_SEED"
SPEAKERS = ("user", "assistant", "tool")

_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
_HEX, _BASE32 = "0123456789abcdef", "234567"
_FIRST = (
    "Ilse", "Tarek", "Ximena", "Duong", "Priya", "Anselm", "Noor", "Matteo", "Freya", "Kwame",
    "Yevgenia", "Paolo", "Solveig", "Hamid", "Chiara", "Bogdan", "Amara", "Lucien", "Keiko",
)  # fmt: skip
_LAST = (
    "Okafor", "Marchetti", "Lindqvist", "Haddad", "Novak", "Brennan", "Sato", "Quiroga", "Petrov",
    "Achterberg", "Nakamura", "Oyelaran", "Dubois", "Kowalska", "Ferreira", "Steiner", "Iqbal",
)  # fmt: skip
_WORDS = (
    "amber", "basalt", "cedar", "delta", "ember", "fjord", "glade", "heron", "iris", "jade", "kelp",
    "lantern", "maple", "nectar", "opal", "pebble", "quartz", "raven", "saffron", "umber",
)  # fmt: skip
_TITLES = (
    "The Quiet",
    "Letters to",
    "A Field of",
    "The Ninth",
    "Songs about",
    "Before the",
    "No More",
)
_CURRENCIES = ("EUR {}", "{} €", "${}", "CHF {}", "£{}", "{} PLN")
_REGIONS = ("KT", "WN", "MZ", "LB", "GR", "ZO", "HD", "SZ")


def seed() -> int:
    """Return the seed of this run, which the processes that it starts share."""
    given = os.environ.get(SEED_VARIABLE, "")
    if not given.isdigit():
        given = os.environ[SEED_VARIABLE] = str(random.SystemRandom().randrange(1_000_000))
    return int(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFact:
    """A value of some shape in a sentence that says what it is about: both stand in it verbatim."""

    shape: str
    value: str
    sentence: str
    topic: str


def draw_fact(
    chance: random.Random, *, shape: str | None = None, speaker: str = "user"
) -> DrawnFact:
    """Return a fact of a shape, or of any, in words that a user, an assistant or a tool has for it.

    Two values are hardly ever the same; who needs certainty draws with `draw_facts`.
    """
    shape = shape or chance.choice(SHAPES)
    label, draw = _DRAWN[shape]
    is_chinese = shape in CHINESE_SHAPES
    topic = chance.choice(_CHINESE_TOPICS if is_chinese else _TOPICS)
    phrases = (_CHINESE_PHRASES if is_chinese else _PHRASES)[speaker]
    value = draw(chance)
    sentence = chance.choice(phrases).format(topic=topic, label=label, value=value)
    if shape == QUOTED:
        sentence = sentence.replace(value, f"“{value}”")
    return DrawnFact(shape=shape, value=value, sentence=sentence, topic=topic)


def draw_facts(
    chance: random.Random, count: int, *, shape: str | None = None, speaker: str = "user"
) -> list[DrawnFact]:
    """Return so many facts, shape after shape, of which no value stands in another's."""
    facts: list[DrawnFact] = []
    while len(facts) < count:
        wanted = shape or SHAPES[len(facts) % len(SHAPES)]
        fact = draw_fact(chance, shape=wanted, speaker=speaker)
        if not any(fact.value in other.value or other.value in fact.value for other in facts):
            facts.append(fact)
    return facts


def code(number: int) -> str:
    """Return the code with this number, the same all through a run: no code stands in another.

    For tests that plant many and look for each: of a shape without spaces, so that a line, a word
    and an echo of a scripted server can begin with it.
    """
    while len(_codes) <= number:
        drawn = draw_fact(_chance_of_codes(), shape=_chance_of_codes().choice(CODE_SHAPES)).value
        if not any(drawn in other or other in drawn for other in _codes):
            _codes.append(drawn)
    return _codes[number]


@cache
def _chance_of_codes() -> random.Random:
    return random.Random(seed())


_codes: list[str] = []
CODE_SHAPES = ("letters-digits", "hexadecimal", "part of a uuid", "snake_case_42", "mixed case")
CODE_PATTERN = (
    r"\b(?:[A-Z]{2,3}-[0-9]{4,6}|[a-f]{2}[0-9a-f]{8}[0-9]|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}"
    r"|[a-z]+_[a-z]+_[0-9]{2,4}"
    r"|(?=[A-Za-z]*[2-7])(?=[a-z2-7]*[A-Z])(?=[A-Z2-7]*[a-z])[A-Za-z2-7]{9})\b"
)
"""What a scripted server echoes of a text with codes."""


# --- the shapes -----------------------------------------------------------------------------------


def _text(chance: random.Random, letters: str, length: int) -> str:
    return "".join(chance.choice(letters) for _ in range(length))


def _hyphened(chance: random.Random) -> str:
    length = chance.randint(4, 6)
    return f"{_text(chance, _UPPER, chance.randint(2, 3))}-{_text(chance, _DIGITS, length)}"


def _digits(chance: random.Random) -> str:
    return chance.choice("123456789") + _text(chance, _DIGITS, chance.randint(5, 8))


def _hexadecimal(chance: random.Random) -> str:
    return _text(chance, "abcdef", 2) + _text(chance, _HEX, 8) + chance.choice(_DIGITS)


def _uuid_part(chance: random.Random) -> str:
    return "-".join(_text(chance, _HEX, length) for length in (8, 4, 4))


def _snake(chance: random.Random) -> str:
    return f"{chance.choice(_WORDS)}_{chance.choice(_WORDS)}_{chance.randint(10, 9999)}"


def _version(chance: random.Random) -> str:
    before = chance.choice(("", "v"))
    return f"{before}{chance.randint(1, 40)}.{chance.randint(0, 60)}.{chance.randint(10, 199)}"


def _phone(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return f"+{chance.randint(30, 99)} {_text(chance, _DIGITS, 3)} {_text(chance, _DIGITS, 6)}"
    return f"0{_text(chance, _DIGITS, 3)}-{_text(chance, _DIGITS, 3)}-{_text(chance, _DIGITS, 4)}"


def _mail(chance: random.Random) -> str:
    return f"{chance.choice(_WORDS)}.{_text(chance, _LOWER, 4)}@{chance.choice(_WORDS)}.example"


def _path(chance: random.Random) -> str:
    ending = chance.choice(("toml", "py", "csv", "md", "yaml"))
    return f"{chance.choice(_WORDS)}/{_text(chance, _LOWER, 5)}/{chance.choice(_WORDS)}.{ending}"


def _moment(chance: random.Random) -> str:
    day = f"{chance.randint(2030, 2059)}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"
    return f"{day} {chance.randint(6, 22):02d}:{chance.randint(0, 59):02d}"


def _amount(chance: random.Random) -> str:
    number = f"{chance.randint(1, 98)},{_text(chance, _DIGITS, 3)}.{_text(chance, _DIGITS, 2)}"
    return chance.choice(_CURRENCIES).format(number)


def _coordinates(chance: random.Random) -> str:
    return f"{chance.uniform(35, 69):.4f}, {chance.uniform(-9, 39):.4f}"


def _plate(chance: random.Random) -> str:
    return f"{chance.choice(_REGIONS)} {chance.randint(100, 999)} {_text(chance, _UPPER, 2)}"


def _name(chance: random.Random) -> str:
    last = chance.choice(_LAST)
    if chance.random() < 0.3:
        last += f"-{chance.choice(_LAST)}"
    return f"{chance.choice(_FIRST)} {last}"


def _title(chance: random.Random) -> str:
    return f"{chance.choice(_TITLES)} {' '.join(chance.sample(_WORDS, 2)).title()}"


def _chinese_order(chance: random.Random) -> str:
    return f"{chance.randint(2030, 2059)}{_text(chance, _DIGITS, 6)}"


def _address(chance: random.Random) -> str:
    numbers = ".".join(str(chance.randint(11, 250)) for _ in range(4))
    return f"{numbers}:{chance.randint(2000, 9999)}"


def _base32(chance: random.Random) -> str:
    """Letters of both cases and digits, each at least once, in no order."""
    drawn = _text(chance, _LOWER, 3) + _text(chance, _UPPER, 3) + _text(chance, _BASE32, 3)
    return "".join(chance.sample(drawn, len(drawn)))


def _new_form(chance: random.Random) -> str:
    """A form that is drawn itself: two to four groups of letters or digits between signs."""
    sign = chance.choice("-./_:")
    groups = [
        _text(chance, chance.choice((_UPPER, _LOWER, _DIGITS)), chance.randint(1, 4))
        for _ in range(chance.randint(1, 3))
    ]
    groups.insert(chance.randint(0, len(groups)), _text(chance, _DIGITS, chance.randint(3, 5)))
    return sign.join(groups)


QUOTED = "quoted title"
_DRAWN: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "letters-digits": ("reference", _hyphened),
    "digits": ("number", _digits),
    "hexadecimal": ("checksum", _hexadecimal),
    "part of a uuid": ("identifier", _uuid_part),
    "snake_case_42": ("alias", _snake),
    "version": ("version", _version),
    "phone": ("phone number", _phone),
    "mail": ("contact", _mail),
    "path": ("file", _path),
    "date and time": ("deadline", _moment),
    "amount": ("price", _amount),
    "coordinates": ("position", _coordinates),
    "plate": ("licence plate", _plate),
    "name": ("owner", _name),
    QUOTED: ("motto", _title),
    "order number in Chinese": ("订单号", _chinese_order),
    "address:port": ("address", _address),
    "mixed case": ("tag", _base32),
    "form drawn anew": ("label", _new_form),
}
"""What a value of each shape is called in its sentence, and how it is drawn."""

SHAPES = tuple(_DRAWN)
CHINESE_SHAPES = frozenset({"order number in Chinese"})

_TOPICS = (
    "parcel", "locker", "pump", "invoice", "tenant", "sensor", "permit", "gallery", "antenna",
    "ticket", "valve", "warehouse", "contract", "laptop", "greenhouse", "projector", "elevator",
    "freezer", "telescope", "caravan", "piano", "workshop", "aquarium", "generator", "scooter",
    "balcony", "chimney", "vineyard", "trailer", "kiosk", "sauna", "tractor", "microscope",
    "drone", "hammock", "compressor", "bakery", "canteen", "dinghy", "easel", "forklift",
    "gazebo", "orchard",
)  # fmt: skip
_PHRASES = {
    "user": (
        "The {label} of the {topic} is {value}.",
        "For the {topic} note the {label} {value}, please.",
        "We registered the {topic} under {value} last week.",
        "{value} is what stands on the {topic}.",
        "By the way, the {topic} goes with {value} from now on.",
        "I wrote down {value} as the {label} of the {topic}.",
        "My aunt's {topic} has {value} as its {label}.",
        "If anybody asks about the {topic}, it is {value}.",
        "About the {topic}: {value}, as agreed with the landlord.",
    ),
    "assistant": (
        "I have entered {value} as the {label} of the {topic}.",
        "Your {topic} has the {label} {value}.",
        "The {topic} is now listed with {value}.",
        "Done: the {topic} goes with {value}.",
        "According to the register, the {label} of the {topic} is {value}.",
    ),
    "tool": (
        "{topic}: {label} = {value}",
        '{{"item": "{topic}", "{label}": "{value}"}}',
        "found 1 entry: {topic}, {label} {value}",
        "OK {topic} -> {value}",
    ),
}
_CHINESE_TOPICS = (
    "台灯", "钢琴", "帐篷", "相机", "冰箱", "自行车", "望远镜", "沙发", "打印机", "咖啡机", "书架",
    "雨伞", "手表", "电视", "地毯", "耳机", "键盘", "行李箱", "洗衣机", "油画",
)  # fmt: skip
_CHINESE_PHRASES = {
    "user": (
        "{topic}的{label}是{value}。",
        "我买的{topic}，{label}{value}，请记一下。",
        "关于{topic}，{label}为{value}。",
        "昨天下单的{topic}用的是{label}{value}。",
    ),
    "assistant": (
        "已登记：{topic}的{label}是{value}。",
        "您的{topic}对应{label}{value}。",
    ),
    "tool": (
        "{topic} {label}：{value}",
        '{{"商品": "{topic}", "{label}": "{value}"}}',
    ),
}

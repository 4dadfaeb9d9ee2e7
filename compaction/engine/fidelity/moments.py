"""The days and times that a text names: May 3, 2024 is 2024-05-03; 8 AM is 08:00."""

from __future__ import annotations

from collections.abc import Iterator, Set

from chatapp.messages.patterns import lazy_pattern

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar enero janvier января",
            "feb february februar febrero février февраля",
            "mar march märz marzo mars марта",
            "apr april abril avril апреля",
            "may mai mayo мая",
            "jun june juni junio juin июня",
            "jul july juli julio juillet июля",
            "aug august agosto août августа",
            "sep sept september septiembre septembre сентября",
            "oct october oktober octubre octobre октября",
            "nov november noviembre novembre ноября",
            "dec december dezember diciembre décembre декабря",
        ),
        start=1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
# Each begins with a digit and looks back behind it: so the search passes quickly over the rest.
_FIRST = "[0-9](?<![0-9][0-9])"
_ISO_DAY = lazy_pattern(rf"({_FIRST}[0-9]{{3}})[-/]([0-9]{{1,2}})[-/]([0-9]{{1,2}})(?![0-9])")
_DOTTED_DAY = lazy_pattern(
    rf"({_FIRST}[0-9]?)[./]([0-9]{{1,2}})[./]([0-9]{{4}}|[0-9]{{2}})(?![0-9])"
)
_DAY_FIRST = lazy_pattern(
    rf"({_FIRST}[0-9]?)(?:st|nd|rd|th|\.)? (?:of |de )?({_MONTH})\b\.?(?:,? ([0-9]{{4}}))?"
)
_BEHIND_WORD = lazy_pattern(
    rf"({_FIRST}(?:(?<=[^\W\d_] [0-9])|(?<=\. [0-9]))[0-9]?)(?:st|nd|rd|th)?(?![0-9:])"
    r"(?:,? ([0-9]{4}))?"
)
_LAST_WORD = lazy_pattern(r"\b(\w+)\.? \Z")
_BEFORE_DAY = 14
"""Characters that hold the longest month, what ends it, and one more than that."""
_WIDE_DAY = lazy_pattern(r"(?:([0-9]{4})年)?([0-9]{1,2})月([0-9]{1,2})[日号]")
_HOURS = "[0-9](?<![0-9:][0-9])[0-9]?"
_CLOCK = lazy_pattern(rf"({_HOURS}):([0-9]{{2}})(?::[0-9]{{2}})?(?:\s?([ap])\.?m\b)?")
_HOUR = lazy_pattern(rf"({_HOURS})\s?([ap])\.?m\b")

Moment = tuple[int, int, int]
"""Year, month and day, with 0 for a year that nobody says and ANY_YEAR beside each that is said;
or CLOCK, hour and minute."""
ANY_YEAR = -1
CLOCK = -2


def moments_of(text: str) -> set[Moment]:
    """Return the days and times that a text names. `text` is `normal`."""
    found: set[Moment] = set()
    for year, month, day in _days_in(text):
        found.add((year, month, day))
        if year:
            found.add((ANY_YEAR, month, day))
    for match in _CLOCK.finditer(text):
        found |= _clock(match[1], match[2], match[3])
    for match in _HOUR.finditer(text):
        found |= _clock(match[1], "0", match[2])
    return found


def _days_in(text: str) -> Iterator[Moment]:
    for match in _ISO_DAY.finditer(text):
        yield int(match[1]), int(match[2]), int(match[3])
    for match in _DOTTED_DAY.finditer(text):
        year = int(match[3]) + (2000 if len(match[3]) == 2 else 0)
        first, second = int(match[1]), int(match[2])
        yield year, first, second
        yield year, second, first
    for match in _DAY_FIRST.finditer(text):
        yield int(match[3] or 0), _MONTHS[match[2]], int(match[1])
    for match in _BEHIND_WORD.finditer(text):
        before = _LAST_WORD.search(text, max(0, match.start() - _BEFORE_DAY), match.start())
        if before and before[1] in _MONTHS:
            yield int(match[2] or 0), _MONTHS[before[1]], int(match[1])
    if "月" not in text:
        return
    for match in _WIDE_DAY.finditer(text):
        yield int(match[1] or 0), int(match[2]), int(match[3])


def _clock(hour: str, minute: str, half: str | None) -> set[Moment]:
    if not half:
        # Half of the people who write 5:30 mean the afternoon.
        return {(CLOCK, int(hour), int(minute)), (CLOCK, int(hour) + 12, int(minute))}
    return {(CLOCK, int(hour) % 12 + (12 if half == "p" else 0), int(minute))}


def share_a_moment(some: Set[Moment], others: Set[Moment]) -> bool:
    """Whether both name the same day or time; a year that one of them leaves out fits any."""
    return any(
        moment in others
        or (moment[0] > 0 and (0, *moment[1:]) in others)
        or (moment[0] == 0 and (ANY_YEAR, *moment[1:]) in others)
        for moment in some
        if moment[0] != ANY_YEAR
    )

"""Pieces of one sentence: put together where a summary has several, and found in such a line again.

A long sentence is parted so that its pieces can be chosen one by one. Where neighbours are chosen,
a reader gets them as one line; later passes choose from the pieces, as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, SMALLEST_SHARE, is_joined
from compaction.engine.extractive.units import longest_of
from compaction.engine.provenance import Unit, UnitKind

MAX_LINE_CHARACTERS = 400
"""Of pieces together: of a longer line, whoever reads a summary back makes several."""
_ENDS_SENTENCE = re.compile(r"[.!?。！？…][\"'”’」』）)\]*]{0,3}$")
_ENDS_CLAUSE = re.compile(r"[,;:—–，、；：]$|\s-$")
_OPEN_END = re.compile(r"\s?[,;，、；،—–]$|\s-$")
_WANTS_MORE = re.compile(
    r"(?:(?:and|but|so|und|aber|et|mais|y|pero|e|ma|mas|en|maar|и|но|а) )?(?:"
    r"(?:if|when|while|because|since|although|though|unless|until|after|before|as|once|whenever|"
    r"in|on|at|for|with|without|by|from|during|despite|according|given|due|besides|instead|"
    r"wenn|falls|weil|da|als|nachdem|bevor|obwohl|während|sobald|bei|mit|nach|trotz|wegen|"
    r"si|quand|lorsque|comme|puisque|parce|après|avant|dès|pour|dans|avec|malgré|"
    r"cuando|como|porque|aunque|mientras|después|antes|para|con|según|"
    r"se|quando|siccome|poiché|perché|mentre|dopo|prima|sebbene|per|"
    r"embora|enquanto|depois|em|wanneer|omdat|hoewel|terwijl|nadat|voordat|zodra|"
    r"если|когда|поскольку|хотя|пока|после|для|при|إذا|عندما|لأن|رغم)\b(?=[^,]*,$)"
    r"|(?:如果|要是|因为|由于|虽然|既然|除非|只要|当|在)[^，]*，$)"
    r"|.*(?:ので|から|たら|れば|ても|とき|면|니까|지만|어서|아서)[、,]$",
    re.I,
)
"""What a piece opens with that tells a condition or a circumstance of what stands behind it."""
_LISTS = re.compile(r",(?: [\w'’()-]+){1,3},$|、[^，。、]{1,8}、$")
_NO_SUBJECT = re.compile(
    r"(?:and|or|but|und|oder|aber|et|ou|mais|y|o|pero|e|ma|mas|en|of|maar|и|или|но|which|who|where|"
    r"который|которая|qui|que|che) (?!(?:[A-ZÀ-ÞА-Я]|i|we|you|he|she|it|they|the|this|that|there|"
    r"my|our|your|his|her|their|ich|wir|er|sie|es|du|das|der|die|je|nous|il|elle|on|ils|tu|yo|"
    r"el|la|los|las|io|noi|lei|eu|nós|ik|wij|het|я|мы|он|она|они|это)\b)",
)
"""A word that joins two pieces, and none behind it that a clause of its own begins with."""
_EXPLAINS = re.compile(
    r"(?:namely|such as|similar to|including|especially|particularly|like|to|being|been|"
    r"rather than|"
    r"nämlich|insbesondere|wie|sowie|à savoir|comme|notamment|ainsi que|es decir|como|tales como|"
    r"incluyendo|cioè|come|ossia|nomeadamente|tais como|incluindo|namelijk|zoals|waaronder|"
    r"такие как|а именно|включая|(?!during\b)[a-z]{3,}ing) "
)
"""What explains the words before it, and says little without them."""
_WIDE = re.compile(f"[{HAN}{KANA}{HANGUL}]")
_SPEAKING = frozenset({"", "assistant", "system", "developer"})
"""What tools print stands in lines, and what is quoted as it was quoted."""
_CUT = re.compile(r"\S\.\.\.\S")
"""Where the middle of a message was left out (abridged.DOTS): it is stored otherwise than read."""
_KEY_CHARACTERS = 12


def continues(one: Unit, other: Unit) -> bool:
    """Whether a unit is what stands behind another one in the same sentence."""
    if one.message is None or other.message != one.message or one.speaker not in _SPEAKING:
        return False
    gap = other.start - one.end
    if gap not in (0, 1) or other.kind is not one.kind or one.kind is UnitKind.ACTION:
        return False
    if one.note or other.note or other.speaker != one.speaker or _ENDS_SENTENCE.search(one.text):
        return False
    if _CUT.search(one.text) or _CUT.search(other.text):
        # The next pass has both from where they are stored, and knows no neighbours there.
        return False
    longest = longest_of(one.kind)
    is_wide = 2 * len(_WIDE.findall(one.text)) > len(one.text)
    longest = longest // 2 if is_wide else longest
    # What is shorter was not parted: it is a line of its own, such as one rule of several.
    if len(one.text) < longest * SMALLEST_SHARE:
        return False
    if not gap or _ENDS_CLAUSE.search(one.text) or is_joined(other.text):
        return True
    return len(one.text) + 1 + len(other.text.split(" ", 1)[0]) > longest


def is_parted(one: Unit, other: Unit) -> bool:
    """Whether neither of two pieces of a sentence can stand without the other.

    A condition, a circumstance and a begun list want what follows; what goes on without a subject
    of its own ("and was cancelled") wants what is before it.
    """
    if one.message != other.message or not continues(one, other):
        return False
    if one.text[-1:].isalnum() and not is_joined(other.text):
        return True
    if is_joined(other.text):
        return bool(_NO_SUBJECT.match(other.text))
    if _EXPLAINS.match(other.text):
        return True
    return bool(_WANTS_MORE.match(one.text) or _LISTS.search(one.text))


def without_open_end(unit: Unit) -> Unit:
    """Return a unit without the comma that it ends with: as a line of its own it is a clause."""
    if not (open_end := _OPEN_END.search(unit.text)):
        return unit
    return unit._replace(text=unit.text[: open_end.start()], end=unit.end - len(open_end[0]))


def put_together(units: Iterable[Unit]) -> list[Unit]:
    """Return units with neighbouring pieces of a sentence as one; their text stands as written."""
    found: list[Unit] = []
    last: Unit | None = None
    for unit in units:
        longer = _joined(found[-1], unit) if last and continues(last, unit) else None
        if longer is not None and len(longer.text) <= MAX_LINE_CHARACTERS:
            found[-1] = longer
        else:
            found.append(unit)
        last = unit
    return found


def lines_of(units: Iterable[Unit]) -> list[Unit]:
    """Return units as the lines of a text: neighbours as one, none with a comma at its end."""
    return list(map(without_open_end, put_together(units)))


def _joined(one: Unit, other: Unit) -> Unit:
    text = f"{one.text}{' ' * (other.start - one.end)}{other.text}"
    named = tuple(dict.fromkeys((*one.entities, *other.entities)))
    return one._replace(text=text, end=other.end, entities=named)


class Pieces:
    """Finds the units that a line was put together from."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._starting: dict[str, list[Unit]] = {}
        self._behind: dict[object, Unit] = {}
        for unit in units:
            if unit.message is not None and unit.speaker in _SPEAKING:
                self._starting.setdefault(unit.text[:_KEY_CHARACTERS], []).append(unit)
                self._behind[unit.message, unit.start] = unit

    def of(self, text: str) -> Sequence[Unit]:
        """Return the pieces of a line in order; nothing where it is no such line."""
        for first in self._starting.get(text[:_KEY_CHARACTERS], ()):
            if text.startswith(first.text) and (found := self._from(first, text)):
                return found
        return ()

    def _from(self, first: Unit, text: str) -> list[Unit]:
        found, whole = [first], first
        while len(whole.text) < len(text):
            places = ((first.message, whole.end + gap) for gap in (0, 1))
            nearest = next((self._behind[one] for one in places if one in self._behind), None)
            if nearest is None or not continues(found[-1], nearest):
                return []
            whole = _joined(whole, nearest)
            found.append(nearest)
        return found if text in (whole.text, without_open_end(whole).text) else []

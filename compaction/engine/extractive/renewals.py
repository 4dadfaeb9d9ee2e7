"""What a statement says anew: it repeats an older one, with another value where "now" stands.

What says so are words of time ("now", "from now on"), of a change of mind ("after all") and of
change ("rises to"). They tell only that something changed: both statements have to begin with the
same words up to the value, or to have the same words in another order.
"""

from __future__ import annotations

import re
from itertools import pairwise

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.contrasts import DENIES, is_doubted
from compaction.engine.extractive.corrections import AS_WELL
from compaction.engine.extractive.cues import cue, is_question
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, remembered, words_in
from compaction.engine.extractive.shifts import (
    PARTICIPLES,
    SHIFT_WORDS,
    SHIFTS,
    SHIFTS_WIDE,
    SLIP,
)
from compaction.engine.extractive.subjects import (
    ARTICLES,
    BESIDE_VALUE,
    PREPOSITIONS,
    TOKEN,
    UNITS,
    VERBS,
)
from compaction.engine.extractive.terms import LONGEST_REMEMBERED, pairs_of, words_of
from compaction.engine.fidelity.entities import (
    DATE,
    IDENTIFIER,
    NAME,
    NUMBER,
    Entity,
    find_entities,
)
from compaction.engine.fidelity.languages import FUNCTION_WORDS
from compaction.engine.provenance import Unit, UnitKind

MOST_CLAUSES = 2
"""At the end of a statement, that are looked at for themselves."""
MOST_WORDS = 3
"""Of a value that is told by no form, such as "the blue room"."""
MOST_WIDE = 12
"""Characters of one in a script without spaces."""
MOST_WIDE_BEHIND = 4
"""Characters of a verb behind it there."""

_DAYS = (
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|tomorrow|now|(?:this|next) (?:week|month|"
    r"quarter|year)"
)
_MONTHS = (
    r"(?:jan|feb|febr|mar|mär|ap|abr|avr|may|mai|maj|ma[gy]|giu|lug|jun|jul|juin|aug|ago|août|"
    r"se[pt]|set|o[ck]t|out|ott|no[vw]|de[cz]|d[ié]c|gen|ene|янв|фев|мар|апр|ма[йя]|июн|июл|авг|"
    r"сен|окт|ноя|дек)[^\W\d_]*"
)
_TAGE = (
    r"heute|jetzt|sofort|morgen|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|"
    r"n(?:ächst|ächst)e[rmn] (?:woche|monat|jahr)"
)
_NOW = cue(
    "now nowadays days jetzt inzwischen mittlerweile nun nunmehr ahora hoy désormais maintenant "
    "dorénavant adesso ormai agora nu inmiddels теперь сейчас ora",
    r"(?!^)\bora (?=(?:è|sono|si|us[ao]|sta)\b)",
    r"(?!^)\b(?:now|nowadays|these days|jetzt|inzwischen|mittlerweile|nun|nunmehr|ahora|"
    r"maintenant|adesso|ormai|agora|nu|inmiddels|теперь|сейчас)\b",
    wide=r"现在|如今|目前|今は|今では|現在は|이제(?!부터)|지금은|الآن",
)
"""A bare word of time; at the start of a sentence it opens an order, too ("now book …")."""
_ANEW = cue(
    "since depuis desde da dal sinds с reflection thought betrachtung réflexion pensándolo "
    "ripensandoci pensando inzien from going moving henceforth as of starting effective after end "
    "künftig zukünftig zukunft fortan neuerdings von ab seit doch "
    "désormais dorénavant avenir à dès finalement "
    "a partir desde adelante más sucesivo final "
    "d'ora da oggi ora invece fine futuro "
    "diante frente doravante agora afinal "
    "voortaan vanaf nu vervolg toekomst toch "
    "отныне впредь с начиная дальнейшем",
    # "Since May", "since last week": what began then holds now.
    rf"\b(?:since|seit|depuis|desde|da|dal|sinds|с) (?:{_MONTHS}\b|yesterday|gestern|hier|ayer|"
    r"ieri|ontem|gisteren|вчера|(?:last|this|letzte[rmn]|diese[rmn]|vorige|прошл\w{2}) [^\W\d_]+|"
    r"(?:la |el |o |a )?[^\W\d_]+ (?:dernier|dernière|pasad[oa]|scors[oa]|passad[oa]))",
    r"\b(?:on (?:second thought|reflection)|bei näherer betrachtung|à la réflexion|"
    r"pensándolo bien|ripensandoci|pensando bem|bij nader inzien)\b",
    rf"\bfrom (?:now|here|today) on(?: out)?\b|\b(?:going|moving) forward\b|\bhenceforth\b"
    rf"|^(?:as of|from|starting|effective) (?:{_DAYS})\b(?: on\b)?|\bas of (?:{_DAYS})[.!]?$"
    r"|\bafter all\b",
    rf"\bvon (?:nun|jetzt|heute) an\b|\b(?:zu)?künftig\b|\bin zukunft\b|\bfortan\b"
    rf"|\bneuerdings\b|\bab (?:sofort|jetzt|heute)\b|^(?:ab|seit) (?:{_TAGE})\b"
    r"|\bdoch(?: erst| schon| nur)?\b",
    r"\bdésormais\b|\bdorénavant\b|\bà l['’]avenir\b|\bà partir de (?:maintenant|demain|lundi)\b"
    r"|^à partir de \S+|^dès (?:maintenant|demain|lundi)\b|\bfinalement\b",
    r"\b(?:a partir|desde) de? ?(?:ahora|hoy|mañana)\b|\bdesde (?:ahora|hoy|mañana)\b"
    r"|^a partir de \S+|\bde (?:ahora|aquí|hoy) en (?:adelante|más)\b"
    r"|\ben (?:adelante|lo sucesivo)\b"
    r"|^al final\b",
    r"\bd['’]ora (?:in poi|in avanti|innanzi)\b|\bda (?:oggi|ora|adesso|domani) in (?:poi|avanti)\b"
    r"|^da (?:oggi|ora|domani)\b|^a partire da \S+|\bin futuro\b|\binvece\b(?! (?:di|che)\b)"
    r"|^alla fine\b",
    r"\b(?:de|a partir de) (?:agora|hoje) em diante\b|\bdaqui (?:para (?:a )?frente|em diante)\b"
    r"|\bdoravante\b|\bafinal\b",
    r"\bvoortaan\b|\bvanaf (?:nu|vandaag|morgen)\b|\bvan nu af aan\b"
    r"|\bin (?:het vervolg|de toekomst)\b"
    r"|\btoch\b",
    r"\b(?:отныне|впредь)\b|\bв дальнейшем\b|^начиная с \S+"
    r"|\bс (?:этого|этой|сегодняшнего|завтрашнего|следующего|следующей) (?:момента|дня|недели|"
    r"месяца|года)\b",
    wide=r"[从自](?:现在|今天|明天|此|今日|即日|下周[一二三四五六日天]?|下个?月|本周|这周|"
    r"明年)(?:开始|起)"
    r"|^(?:今后|往后|以后|即日起)"
    r"|^(?:これから|今後|(?:今日|明日|今週|来週|今月|来月|来年)から)は?"
    r"|^(?:이제부터|앞으로|(?:오늘|내일|지금|다음 ?주|다음 ?달)부터)(?:는|은)?(?= )"
    r"|من الآن(?: فصاعدا?ً?ا?)?|^(?:ابتداء|اعتبار)ا?ً?ا? من \S+|^بعد الآن|改(?=[在用由去])|"
    r"^(?:أصبح|صار)ت?(?= )"
    r"|\b(?:отныне|впредь)\b",
)
"""What says beyond doubt that another value holds, wherever it stands."""
_BECOMES = cue(
    "becomes became become to auf zu à devient deviendra a ser diventa diventato diventata para "
    f"wordt naar стал стала стало стали становится до {SHIFT_WORDS}",
    r"\b(?:becomes|became|will become|(?:goes|went|rises|rose|drops|dropped|falls|fell) "
    r"(?:up |down )?to|(?:has been|was|is|gets|got) (?:raised|lowered|increased|reduced|cut|"
    r"extended|shortened|moved|changed|set) to)\b",
    r"\b(?:(?:steigt|stieg|sinkt|sank|fällt|fiel|erhöht sich) auf|wird zu)\b",
    r"\b(?:(?:est )?pass(?:e|era|ée?) à|devient|deviendra|monte à|descend à)(?= )",
    r"\b(?:(?:pasa|pasará|pasó|ha pasado) a(?: ser)?(?: de)?|(?:sube|baja|subió|bajó|ha subido|"
    r"ha bajado) a)\b",
    r"\b(?:diventa|(?:sale|scende|passa) a|è (?:salit|sces|passat)[oa] a|è diventat[oa])\b",
    r"\b(?:pass(?:a|ou) a ser(?: de)?|(?:passa|passou|sobe|subiu|desce|desceu) para)\b",
    r"\b(?:wordt|(?:stijgt|daalt|gaat|is gestegen|is verhoogd) naar)\b",
    *SHIFTS,
    wide=rf"{SHIFTS_WIDE}|"
    r"\b(?:стал[аои]?|становится|(?:вырос|снизил|поднял)\w{0,4} до)\b"
    r"|に(?:なりました|なります|変わりました|変わります|変更されました|変更します|変更に(?:なりました|なります))(?=[。.!！]?$)"
    r"|(?:으로|로|이|가) (?:되었습니다|됐습니다|됩니다|바뀌었습니다|바뀝니다|변경되었습니다|"
    r"변경됩니다)(?=[.!]?$)",
)
_STATES = lazy_pattern(
    r"\b(?:is|are|(?:has|have) been|costs?|equals|ist|sind|kostet|beträgt|liegt bei|est(?: de)?|"
    r"s['’]appelle|sont|coûte|"
    r"es(?: de)?|son|está|están|cuesta|è(?: di)?|costa|é(?: de)?|são|custa|zijn|kost|bedraagt|"
    r"стоит|"
    r"составляет)\b|です(?=[。.!！]?$)|입니다(?=[.!]?$)|(?:定)?[是为](?=[^，,。]{1,12}[。.!！]?$)",
    re.I,
)
_TOPIC_WIDE = lazy_pattern(rf"(?<=[{HAN}{KANA}])が")
_TOPIC_KOREAN = lazy_pattern(rf"(?<=[{HANGUL}])(?:은|이|가)(?= )")
_JOINED = lazy_pattern(
    r"^(?:so|also|daher|deshalb|donc|así que|quindi|perciò|portanto|por isso|dus|daarom|поэтому|"
    r"и|and|und|et|y|e|en) |^(?:所以|因此|だから|なので|그래서 )",
    re.I,
)
"""What joins a clause to the one before it."""
_AT = lazy_pattern(r"= ?(?:on|at|in|for|by|am|um|im|à|aux?|le|el|alle|il|às|op|om)\b(?= )", re.I)
"""Where a value stands: "is on Monday", and "was moved to Monday"."""
_NEW_ONE = lazy_pattern(
    r"\b(?:new|neuer?|neues|nouve(?:au|lle)|nuev[oa]|nuov[oa]|nov[oa]|nieuwe?|нов(?:ый|ая|ое)) |"
    r"新しい|新的?",
    re.I,
)
_SOFTENS = lazy_pattern(
    r"\b(?:nur noch|erst|schon|bereits|already|only|déjà|già|já|ya|уже)\b", re.I
)
# What one does, has or supports of many things takes none of the others back.
_OF_MANY = lazy_pattern(
    r"\b(?:supports?|accepts?|includes?|offers?|contains?|provides?|handles?|allows?|speaks?|"
    r"knows?|has|have|owns?|covers?|sells?|ships?|visit\w*|hired?|add(?:s|ed)?|merged?|finished|"
    r"closed|paid|fixed|deployed|released|tested|reviewed|read|know|met|book(?:ed)?|"
    r"unterstützt|unterstützen|akzeptiert|bietet|enthält|spricht|kennt|hat|haben|habe|besucht|"
    r"verkauft|liefert|prend en charge|supporte|accepte|propose|contient|parle|avons|vend|"
    r"soporta|acepta|ofrece|incluye|contiene|habla|tiene|tenemos|vende|supporta|accetta|offre|"
    r"include|parla|ha|abbiamo|suporta|aceita|oferece|inclui|contém|fala|tem|temos|ondersteunt|"
    r"accepteert|biedt|bevat|spreekt|heeft|hebben|поддерживает|принимает|включает|предлагает|"
    r"говорит|есть|يدعم|تدعم|يقبل)\b"
    r"|支持|接受|包括|提供|有|対応|受け付け|지원|제공",
    re.I,
)
_END = ".!? "
_TOPIC = lazy_pattern(r"\s?(?:은|는|이(?!다|에요)|가|は|が|も|도)")
_WIDE_END = lazy_pattern(
    rf"\s?(?:[{HAN}]?了?|[{HAN}]{{2,3}}(?==)|"
    rf"[{KANA}][{KANA}{HAN}]{{0,11}}|[{HANGUL} ]{{0,12}})=?[。.!！]?$"
)
_JOINED_TO_VALUE = frozenset("是由在用为為叫到归歸找给給改は=")
_OF_WEEKDAY = lazy_pattern(r"(?:周|星期|礼拜)$")
"""What all days begin with is a part of the value."""
_TOPIC_BEFORE = lazy_pattern(rf"[{HANGUL}](?:은|는|이|가) $")
_WIDE_BEHIND = lazy_pattern(
    rf"(?:[{HAN}]{{0,{MOST_WIDE_BEHIND}}}了?"
    rf"|(?:さん|様|氏)?=?|님?(?:으로|로)? ?[{HANGUL} ]{{0,8}}=?)"
)
_WIDE = lazy_pattern(rf"[{HAN}{KANA}{HANGUL}]")
_DENIES_WIDE = lazy_pattern(r"[不没]|ない|ません|아니|아닙|않")
_CLAUSE = lazy_pattern(r"[,;:.] (?=\S+ \S+ \S)")
_ENDS_OF_CLAUSE = ",:;、，； "
_BEGINS = ",:、，;- "
_ENDS = ".!?。！؟ "
_JOINING_WORDS = (
    PREPOSITIONS | VERBS | frozenset(FUNCTION_WORDS) | {"=", "هو", "هي", "في", "على"}
) - ARTICLES


@remembered(longest=LONGEST_REMEMBERED)
def says_now(text: str) -> bool:
    """Whether a text has words that say that something holds now, or holds anew."""
    words = words_in(text)
    return _NOW.is_in(text, words) or _says_anew(text)


@remembered(longest=LONGEST_REMEMBERED)
def _says_anew(text: str) -> bool:
    """Whether a text says so beyond doubt, not by a bare word of time."""
    words = words_in(text)
    return any(one.is_in(text, words) for one in (_ANEW, _BECOMES, SLIP))


def renews(unit: Unit) -> bool:
    """Whether a statement says what holds now; an order ("now book ...") never does."""
    if unit.kind not in (UnitKind.FACT, UnitKind.DECISION) or is_question(unit.text):
        return False
    renewing = says_now(unit.text) if unit.entities else _says_anew(unit.text)
    return renewing and not is_doubted(unit.text)


def renewed(old: str, new: str) -> Entity | None:
    """Return the value of an older statement that a newer one has another one for.

    Both begin with the same words up to the value; what stands behind the newer value stands behind
    the older one, too. What a sentence begins with is no value: "TC-18 now passes" says nothing of
    TC-17. The key of a value that is told by no form is empty.
    """
    if AS_WELL.search(new) or not says_now(new):
        return None
    # "Henrik has left; Marta is our lead now": what says so may stand behind something else.
    behind = [new[mark.end() :] for mark in _CLAUSE.finditer(new)][-MOST_CLAUSES:]
    pieces = (new, *(piece for piece in behind if says_now(piece)))
    return next((one for piece in pieces if (one := _renewed(old, piece))), None)


def said_instead(old: str, new: str) -> Entity | None:
    """Return the value of an older text that a clause has another one for, beside which it stands.

    "The Orchard fell through; the venue is the Granary": one clause says again what was said, and
    the rest names the value that it was said with.
    """
    clauses = _clauses_of(new)
    if not clauses:
        return None
    before = _NEW_ONE.sub("", _plain(old, becomes=True))
    values = {one.text.casefold() for one in find_entities(before)}
    for clause, after, rest in clauses:
        # The slow comparison comes last: most clauses stand beside none of the older values.
        if any(value in rest for value in values):
            value = _named_value(before, after, clause, is_anew=True)
            if value is not None and value.text.casefold() in rest:
                return value
    return None


@remembered(longest=LONGEST_REMEMBERED)
def _clauses_of(text: str) -> tuple[tuple[str, str, str], ...]:
    """Return each clause of a text, the same as it is compared, and the rest in small letters.

    There is none where the text takes nothing back: it is compared with many older ones.
    """
    if AS_WELL.search(text) or is_doubted(text):
        return ()
    ends = [0, *(mark.end() for mark in _CLAUSE.finditer(text)), len(text)]
    found = []
    for start, end in pairwise(ends):
        clause = _JOINED.sub("", text[start:end].rstrip(_ENDS_OF_CLAUSE))
        plain = _NEW_ONE.sub("", _plain(clause, becomes=True))
        found.append((clause, plain, (text[:start] + text[end:]).casefold()))
    return tuple(found)


def _renewed(old: str, new: str) -> Entity | None:
    is_anew = _says_anew(new)
    before, after = _plain(old, becomes=is_anew), _plain(new, becomes=is_anew)
    older = _named_value(before, after, new, is_anew=is_anew)
    if older is None and is_anew:
        older = _words_apart(before, after)
    return older


def _named_value(before: str, after: str, new: str, *, is_anew: bool) -> Entity | None:
    """Return the thing that one text names where the other names another one."""
    place = _first_difference(before, after)
    if place is None:
        return None
    older, newer = _at(before, place[0]), _at(after, place[1])
    is_wide = bool(_WIDE.search(after))
    if is_anew and not is_wide and not (older and newer):
        return _turned_round(before, after)
    if older is None or newer is None or not _can_replace(older, newer):
        return None
    lead = after[: newer.start]
    if not (words_of(lead) or pairs_of(lead)):
        return None
    if older.kind not in (NUMBER, DATE) and _OF_MANY.search(lead):
        return None
    behind = after[newer.end :]
    if is_wide:
        is_meant = not _stands_before_now(newer, new) and _is_end(behind, before[older.end :])
    else:
        alone = is_anew or _stands_before_now(newer, new)
        is_meant = _goes_on(before[older.end :], behind, after, newer, alone=alone)
    return older if is_meant else None


def _stands_before_now(value: Entity, text: str) -> bool:
    """Whether a value stands before a bare word of time: then it may be what is spoken of."""
    now = _NOW.pattern.search(text) or _NOW.wide.search(text)
    return now is not None and value.text in text[: now.start()]


@remembered(longest=LONGEST_REMEMBERED)
def _plain(text: str, *, becomes: bool) -> str:
    """Return a text without its words of time, and with one sign for what is and what becomes."""
    for cues in (SLIP, _ANEW, _NOW):
        text = cues.wide.sub(" ", cues.pattern.sub(" ", text))
    if becomes:
        text = _BECOMES.wide.sub("=", _BECOMES.pattern.sub("=", text))
        text = _TOPIC_WIDE.sub("は", _TOPIC_KOREAN.sub("는", PARTICIPLES.sub("", text)))
        text = _SOFTENS.sub(" ", _STATES.sub("=", text))
        text = _AT.sub("=", text)
    return " ".join(text.split()).lstrip(_BEGINS)


def _first_difference(old: str, new: str) -> tuple[int, int] | None:
    """Return where two texts begin to differ by a word."""
    for one, other in zip(TOKEN.finditer(old), TOKEN.finditer(new), strict=False):
        if one[0].casefold() != other[0].casefold():
            return one.start(), other.start()
    return None


def _at(text: str, place: int) -> Entity | None:
    return next((one for one in find_entities(text) if one.start <= place < one.end), None)


def _turned_round(old: str, new: str) -> Entity | None:
    """Return the value of a text whose other words another one has, too, in another order.

    "Ab heute liegt das Archiv auf Amber": the verb stands before what the sentence is about. What
    stands behind no preposition may be just that, unless it is the last word.
    """
    for older in find_entities(old):
        rest = _others(old, older)
        for newer in find_entities(new):
            is_other = older.key != newer.key and _can_replace(older, newer)
            if is_other and rest == _others(new, newer):
                is_one_of_many = older.kind not in (NUMBER, DATE) and _OF_MANY.search(new)
                is_value = all(map(_is_value, (old, new), (older, newer)))
                return older if is_value and not is_one_of_many else None
    return None


@remembered(longest=LONGEST_REMEMBERED)
def _others(text: str, value: Entity) -> list[str]:
    """Return the other words of a text, sorted: each text is compared with many."""
    rest = f"{text[: value.start]} {text[value.end :]}"
    return sorted(word.casefold() for word in TOKEN.findall(rest))


def _is_value(text: str, one: Entity) -> bool:
    if not text[one.end :].strip(_END):
        return True
    before = TOKEN.findall(text[: one.start])
    return bool(before) and before[-1].casefold() in PREPOSITIONS


def _words_apart(old: str, new: str) -> Entity | None:
    """Return the last words of a text where the other one has others, behind the same words."""
    if _OF_MANY.search(new):
        return None
    old, new = old.rstrip(_ENDS), new.rstrip(_ENDS)
    start = _shared_start(old, new)
    if _WIDE.search(new):
        start = len(_OF_WEEKDAY.sub("", old[:start]))
        end = _shared_start(old[start:][::-1], new[start:][::-1])
        value, other = old[start : len(old) - end], new[start : len(new) - end]
        lead = old[:start]
        is_joined = lead[-1:] in _JOINED_TO_VALUE or bool(_TOPIC_BEFORE.search(lead))
        is_meant = is_joined and bool(_WIDE_BEHIND.fullmatch(old[len(old) - end :]))
        is_meant = is_meant and bool(pairs_of(lead)) and max(len(value), len(other)) <= MOST_WIDE
        is_meant = is_meant and not (_DENIES_WIDE.search(other) or "=" in value + other)
    else:
        start = old.rfind(" ", 0, start) + 1 if start < len(old) else start
        value, other, words = old[start:], new[start:], old[:start].casefold().split()
        is_meant = bool(words) and words[-1] in _JOINING_WORDS and bool(words_of(" ".join(words)))
        is_meant = is_meant and _are_values(value.casefold().split(), other.casefold().split())
    if not is_meant or not value.strip() or not other.strip():
        return None
    return Entity(NAME, value, "", start, start + len(value))


def _are_values(older: list[str], newer: list[str]) -> bool:
    """Whether some words can each be a value: no verb, no denial, and not the same in the end."""
    both = {*older, *newer}
    if max(len(older), len(newer)) > MOST_WORDS or any(map(DENIES.search, newer)):
        return False
    return both.isdisjoint(VERBS | {"="}) and older[-1:] != newer[-1:]


def _shared_start(one: str, other: str) -> int:
    pairs = zip(one.casefold(), other.casefold(), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _can_replace(older: Entity, newer: Entity) -> bool:
    codes = {IDENTIFIER, NAME}
    return older.kind == newer.kind or {older.kind, newer.kind} <= codes


def _is_end(behind: str, behind_older: str) -> bool:
    """Whether a value in a script without spaces ends its sentence, and is not its subject."""
    if _TOPIC.match(behind):
        return False
    same = behind.strip(" 。.!！") == behind_older.strip(" 。.!！")
    return same and bool(_WIDE_END.match(behind))


def _goes_on(behind_older: str, behind: str, text: str, value: Entity, *, alone: bool) -> bool:
    """Whether what stands behind a newer value can: a unit, and what the older one has, too."""
    words = [word.casefold() for word in TOKEN.findall(behind)]
    older = [word.casefold() for word in TOKEN.findall(behind_older)]
    is_measured = value.kind == NUMBER and bool(words)
    if is_measured and words[0] not in PREPOSITIONS:
        is_unit = words[0] in UNITS or bool(BESIDE_VALUE.search(text[: value.start]))
        if not is_unit or words[0] != (older[0] if older else ""):
            return False
        words, older = words[1:], older[1:]
    if words and (alone or words[0] not in PREPOSITIONS | ARTICLES):
        return False
    if older and older[0] not in PREPOSITIONS | UNITS | FUNCTION_WORDS:
        return False  # the older value is what its sentence is about
    content = [word for word in words if word not in ARTICLES | PREPOSITIONS]
    return set(content) <= set(older)

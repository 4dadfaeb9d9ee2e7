"""Whether two statements are about the same, and what "now" says anew of it.

What is replaced is gone from every later summary, and what is not replaced only stands beside the
newer value: in doubt two statements are about two things.
"""

from __future__ import annotations

import re
from collections.abc import Set

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.corrections import AS_WELL, SAYS_NOW
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set
from compaction.engine.extractive.terms import pairs_of, words_of
from compaction.engine.fidelity.entities import IDENTIFIER, NAME, NUMBER, Entity, find_entities
from compaction.engine.fidelity.languages import FUNCTION_WORDS

FEWEST_LETTERS_OF_STEM = 4
MOST_OWN = 2
"""Times as many words have to be shared as each of two statements has alone."""
MOST_LABEL = 3
"""Words before a number that is a name: "Update: test case 17"."""
_UNITS = word_set(
    "eur usd gbp chf jpy euro euros dollar dollars pounds yen gb mb kb tb gib mib ms seconds "
    "minutes hours days weeks months years percent people users persons tage stunden wochen monate "
    "jahre minuten sekunden leute personen jours heures mois ans jahr días horas meses años giorni "
    "ore mesi anni dias anos dagen uur weken рублей рубля часов дней месяцев лет евро km kg px"
)
_VERBS = word_set(
    "run runs running live lives work works sit sits stay stays stand stands cost costs pay pays "
    "use uses using listen listens equal equals start starts begin begins leave leaves meet meets "
    "take takes moved switched changed swapped noted "
    "läuft laufen nutzt nutzen verwendet verwenden benutzt wohnt wohne lebt lebe arbeitet kostet "
    "zahlen zahlt liegt steht findet statt hört lauscht beginnt heißt umgestellt gewechselt "
    "tourne tournent utilise utilisent utilisons habite vit travaille coûte coute trouve écoute "
    "payons paie passée passé s'appelle commence "
    "usa usan usamos utiliza utilizan vivo vive viven trabaja cuesta está corre funciona escucha "
    "pagamos paga empieza cambiamos pasó llama "
    "usano usiamo utilizza abito abita vivono lavora gira trova ascolta costa paghiamo inizia "
    "usam utilizam moro mora trabalha custa roda fica escuta começa "
    "draait gebruikt gebruiken woont woon werkt staat luistert betaalt betalen begint "
    "работает использует используем живёт живет живу стоит находится слушает платим платит "
    "начинается перешла перешел перешёл "
    "يعمل تعمل يستخدم نستخدم تستخدم أعيش يسكن"
)
_SAY_NOW = word_set(
    "now nowadays jetzt inzwischen mittlerweile nun heute früher bisher ahora hoy antes désormais "
    "maintenant avant adesso ormai oggi agora hoje nu inmiddels vroeger теперь сейчас раньше "
    "уже больше yesterday today sondern sino bensì senão pero aber but mais mas maar instead"
)
_NOT_SUBJECTS = _UNITS | _VERBS | _SAY_NOW
_ENDS_OF_VERBS = frozenset("用是改换換变變更搬住去叫走在行为為说說")
_BEGIN_VERBS = frozenset("改换換再现現今変变變使")
_PLAIN_PAIR = lazy_pattern(rf"[{HAN}]{{2}}|[\u30a1-\u30ff]{{2}}|[{HANGUL}]{{2}}")
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
_ARTICLES = word_set("the a an der die das den dem le la les el los il lo i o os as de het een")
_TOKEN = lazy_pattern(rf"[{HAN}]|[{KANA}]|[{HANGUL}]|[^\W{HAN}{KANA}{HANGUL}]+")
_END = ".!? "
_WIDE = lazy_pattern(rf"[{HAN}{KANA}{HANGUL}]")
_KOREAN_VERB = lazy_pattern(rf"(?<![{HANGUL}])[{HANGUL}]{{1,12}}+(?<=[다요])(?=[.!,\s]|$)")
_TOPIC = lazy_pattern(r"\s?(?:은|는|이(?!다|에요)|가|は|が|も|도)")
_TOPIC_OF = lazy_pattern(
    r"^(?:([^はがもをのにで、\s]{1,12})[はがも]|(\S{1,12}?)(?:은|는|이|가) (?!아니|아닙))"
)
_WIDE_END = lazy_pattern(
    rf"\s?(?:[{HAN}]?了?|[{KANA}][{KANA}{HAN}]{{0,11}}|[{HANGUL} ]{{0,12}})[。.!！]?$"
)
_OPENS = lazy_pattern(
    r"^(?:(?:as of|from|starting|effective) (?:today|now|this week|tomorrow)(?: on)?|"
    r"(?:ab|seit) (?:heute|jetzt|sofort)|[àa] partir de \S+|"
    r"(?:da (?:oggi|ora)(?: in poi)?|now|nowadays|ahora|ora|nu|agora|теперь|сейчас|الآن)\b|"
    r"现在|如今|目前|今は|現在は|이제|지금은)[,:、，]?\s*",
    re.I,
)
_PREPOSITIONS = word_set(
    "on in at for since from to by with per until till as of during after before and or because "
    "seit ab für bis im am bei mit pro von zu und weil depuis pour dans en à par avec et desde "
    "para con por hasta y dal per da con fino e com até sinds voor bij met tot с для в на до из по"
)
_BESIDE_VALUE = lazy_pattern(
    r"\b(?:is|are|has|have|hat|haben|tiene|ha|tem|heeft|costs?|equals|at|on|to|ist|sind|kostet|est|es|está|è|é|cuesta|coûte|costa|custa|"
    r"kost|стоит|bij|op|auf|à|a)\s$",
    re.I,
)


def subject_words(words: Set[str], text: str) -> frozenset[str]:
    """Return which words of a statement can be its subject: no verb, no unit, none of a verb."""
    no_subject = {pair for verb in _KOREAN_VERB.findall(text) for pair in pairs_of(verb)}
    return frozenset(
        word
        for word in words - no_subject - _NOT_SUBJECTS
        if not _WIDE.match(word) or _is_noun(word)
    )


def _is_noun(pair: str) -> bool:
    """Whether two characters can name something: they are no part of a verb and no ending."""
    is_of_verb = pair[-1] in _ENDS_OF_VERBS or pair[0] in _BEGIN_VERBS
    return not is_of_verb and bool(_PLAIN_PAIR.fullmatch(pair))


def are_alike(older: Set[str], newer: Set[str]) -> bool:
    """Whether two statements are about the same: one names nothing that the other does not.

    Or each has a word of its own, beside at least three that are the other's, too.
    """
    shared = sum(any(_is_same(one, other) for other in older) for one in newer)
    own = min(len(older), len(newer)) - shared
    return shared > 0 and (own <= 0 or shared > MOST_OWN * own)


def _is_same(one: str, other: str) -> bool:
    """Whether two words are one in two forms; an ending of two letters tells no two things."""
    if one == other:
        return True
    stem = min(len(one), len(other)) - 1
    return (
        stem >= FEWEST_LETTERS_OF_STEM
        and abs(len(one) - len(other)) <= 2
        and one[:stem] == other[:stem]
        and one.isalpha()
    )


def have_other_topics(old: str, new: str) -> bool:
    """Whether both statements mark what they are about, in Japanese or Korean, and it differs."""
    if old.isascii() or new.isascii():
        return False
    one, other = _TOPIC_OF.match(old), _TOPIC_OF.match(new)
    return one is not None and other is not None and one.groups() != other.groups()


def renewed(old: str, new: str) -> Entity | None:
    """Return the value of an older statement that a newer one with "now" has another one for.

    Both begin with the same words up to the value, a verb among them; what stands behind the
    newer value stands behind the older one, too. What a sentence begins with is no value: "TC-18
    now passes" says nothing of TC-17.
    """
    if AS_WELL.search(new):
        return None
    now = SAYS_NOW.search(new)
    opens = _OPENS.match(new)
    if now is None and opens is None:
        return None
    before, after = _without_now(old), _without_now(new)
    place = _first_difference(before, after)
    if place is None:
        return None
    older, newer = _at(before, place[0]), _at(after, place[1])
    if opens and not (older and newer):
        older, newer = _turned_round(before, after)
    if older is None or newer is None or not _can_replace(older, newer):
        return None
    lead = after[: newer.start]
    if not (words_of(lead) or pairs_of(lead)):
        return None
    if older.kind != NUMBER and _OF_MANY.search(lead):
        return None
    behind = after[newer.end :]
    is_last = opens is None and now is not None and newer.text in new[: now.start()]
    if _WIDE.search(after):
        is_meant = not is_last and _is_end(behind, before[older.end :])
    else:
        is_meant = _goes_on(before[older.end :], behind, after, newer, alone=is_last or bool(opens))
    return older if is_meant else None


def _without_now(text: str) -> str:
    text = _OPENS.sub("", text, 1)
    return " ".join(SAYS_NOW.sub(" ", text).split())


def _first_difference(old: str, new: str) -> tuple[int, int] | None:
    """Return where two texts begin to differ by a word."""
    for one, other in zip(_TOKEN.finditer(old), _TOKEN.finditer(new), strict=False):
        if one[0].casefold() != other[0].casefold():
            return one.start(), other.start()
    return None


def _at(text: str, place: int) -> Entity | None:
    return next((one for one in find_entities(text) if one.start <= place < one.end), None)


def _turned_round(old: str, new: str) -> tuple[Entity | None, Entity | None]:
    """Return the last words of two texts, where the others are the same in another order.

    "Ab heute liegt das Archiv auf Amber": the verb stands before what the sentence is about.
    """
    older, newer = (_at(text, len(text.rstrip(_END)) - 1) for text in (old, new))
    if older is None or newer is None:
        return None, None
    leads = (old[: older.start], new[: newer.start])
    one, other = (sorted(word.casefold() for word in _TOKEN.findall(lead)) for lead in leads)
    return (older, newer) if one == other else (None, None)


def is_subject(value: Entity, text: str) -> bool:
    """Whether a number or a code is what its sentence is about: "PR 231 is merged"."""
    if value.kind not in (NUMBER, IDENTIFIER) or _WIDE.search(text):
        return False
    lead = [word for word in _TOKEN.findall(text[: value.start]) if word not in _ARTICLES]
    behind = [word.casefold() for word in _TOKEN.findall(text[value.end :])]
    goes_on = bool(behind) and behind[0] not in _PREPOSITIONS | _UNITS
    return goes_on and not _BESIDE_VALUE.search(text[: value.start]) and len(lead) <= MOST_LABEL


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
    words = [word.casefold() for word in _TOKEN.findall(behind)]
    older = [word.casefold() for word in _TOKEN.findall(behind_older)]
    is_measured = value.kind == NUMBER and bool(words)
    if is_measured and words[0] not in _PREPOSITIONS:
        is_unit = words[0] in _UNITS or bool(_BESIDE_VALUE.search(text[: value.start]))
        if not is_unit or words[0] != (older[0] if older else ""):
            return False
        words, older = words[1:], older[1:]
    if words and (alone or words[0] not in _PREPOSITIONS | _ARTICLES):
        return False
    if older and older[0] not in _PREPOSITIONS | _UNITS | FUNCTION_WORDS:
        return False  # the older value is what its sentence is about
    content = [word for word in words if word not in _ARTICLES | _PREPOSITIONS]
    return set(content) <= set(older)

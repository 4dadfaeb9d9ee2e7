"""Whether two statements are about the same, and what "now" says anew of it.

What is replaced is gone from every later summary, and what is not replaced only stands beside the
newer value: in doubt two statements are about two things.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Set

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set
from compaction.engine.extractive.terms import pairs_of
from compaction.engine.fidelity.entities import IDENTIFIER, NUMBER, Entity
from compaction.engine.fidelity.languages import FUNCTION_WORDS

FEWEST_LETTERS_OF_STEM = 4
MOST_OWN = 2
"""Times as many words have to be shared as each of two statements has alone."""
MOST_LABEL = 3
"""Words before a number that is a name: "Update: test case 17"."""
UNITS = word_set(
    "eur usd gbp chf jpy euro euros dollar dollars pounds yen gb mb kb tb gib mib ms seconds "
    "minutes hours days weeks months years percent people users persons tage stunden wochen monate "
    "jahre minuten sekunden leute personen jours heures mois ans jahr días horas meses años giorni "
    "ore mesi anni dias anos dagen uur weken рублей рубля часов дней месяцев лет евро km kg px"
)
VERBS = word_set(
    "run runs running live lives work works sit sits stay stays stand stands cost costs pay pays "
    "use uses using listen listens equal equals start starts begin begins leave leaves meet meets "
    "take takes moved switched changed swapped noted "
    "beträgt läuft laufen nutzt nutzen verwendet verwenden benutzt wohnt wohne lebt lebe "
    "arbeitet kostet "
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
CALENDAR = word_set(
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag "
    "freitag samstag sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes "
    "martes miércoles jueves viernes sábado domingo lunedì martedì mercoledì giovedì venerdì "
    "sabato "
    "domenica segunda terça quarta quinta sexta maandag dinsdag woensdag donderdag vrijdag "
    "zaterdag "
    "zondag понедельник вторник среда среду четверг пятница пятницу суббота субботу воскресенье"
)
"""Days that stand beside a date, and change with it."""
_NOT_SUBJECTS = (
    CALENDAR
    | UNITS
    | VERBS
    | _SAY_NOW
    | frozenset(FUNCTION_WORDS)
    | word_set(
        "hemos habéis han abbiamo avete hanno avons avez ont haben habe hebben temos têm onze "
        "unser "
        "unsere nuestro nuestra nosso nossa nostro nostra notre نحن إلى "
    )
)
_ENDS_OF_VERBS = frozenset("用是改换換变變更搬住去叫走在行为為说說")
_BEGIN_VERBS = frozenset("改换換再现現今変变變使")
_PLAIN_PAIR = lazy_pattern(rf"[{HAN}]{{2}}|[\u30a1-\u30ff]{{2}}|[{HANGUL}]{{2}}")
ARTICLES = word_set("the a an der die das den dem le la les el los il lo i o os as de het een")
TOKEN = lazy_pattern(rf"[{HAN}]|[{KANA}]|[{HANGUL}]|[^\W{HAN}{KANA}{HANGUL}]+")
_WIDE = lazy_pattern(rf"[{HAN}{KANA}{HANGUL}]")
_KOREAN_VERB = lazy_pattern(rf"(?<![{HANGUL}])[{HANGUL}]{{1,12}}+(?<=[다요])(?=[.!,\s]|$)")
_TOPIC_OF = lazy_pattern(
    r"^(?:([^はがもをのにで、\s]{1,12})[はがも]|(\S{1,12}?)(?:은|는|이|가) (?!아니|아닙))"
)
PREPOSITIONS = word_set(
    "on in at for since from to by with per until till as of during after before and or because "
    "seit ab für bis im am bei mit pro von zu und weil depuis pour dans en à par avec et desde "
    "para con por hasta y dal per da con fino e com até sinds voor bij met tot с для в на до из по"
)
BESIDE_VALUE = lazy_pattern(
    r"\b(?:is|are|has|have|hat|haben|tiene|ha|tem|heeft|costs?|equals|at|on|to|ist|sind|kostet|"
    r"est|es|está|è|é|cuesta|coûte|costa|custa|"
    r"kost|стоит|bij|op|auf|à|a)\s$|=\s$",
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
    shared = shared_words(older, newer)
    own = min(len(older), len(newer)) - shared
    return shared > 0 and (own <= 0 or shared > MOST_OWN * own)


def shared_words(older: Set[str], newer: Set[str]) -> int:
    """Return how many words of a statement another one has, too, in whatever form."""
    return sum(any(_is_same(one, other) for other in older) for one in newer)


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


class SubjectIndex:
    """Statements by number, found by what they are about: a session may name a thing often.

    Of the smaller one of two alike subjects, less than a third of the words are its own: among its
    rarest words, one more than may be its own, is one that the other has, too.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.known = 0
        self._subjects: dict[int, frozenset[str]] = {}
        self._by_stem: defaultdict[str, list[int]] = defaultdict(list)
        self._by_rare_stem: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, number: int, subject: frozenset[str]) -> None:
        """Note what a statement is about; that may be nothing."""
        self._subjects[number] = subject
        stems = self._rarest_first(subject)
        # Two words of one stem may both be those of one word of the other.
        is_plain = len(stems) == len(subject)
        for stem in stems[: _most_own(subject) + 1] if is_plain else stems:
            self._by_rare_stem[stem].append(number)
        if not subject:
            self._by_rare_stem[""].append(number)
        for stem in stems:
            self._by_stem[stem].append(number)

    def near(
        self, subject: Set[str], is_gone: Callable[[int], bool]
    ) -> list[tuple[int, frozenset[str]]]:
        """Return, in order, each statement that are_alike may hold for, or that names no subject.

        What is gone is never looked at again.
        """
        stems = self._rarest_first(subject)
        found: set[int] = set()
        for stem in ("", *stems):
            found.update(_holding(self._by_rare_stem, stem, is_gone))
        for stem in stems[: _most_own(subject) + 1]:
            found.update(_holding(self._by_stem, stem, is_gone))
        return [(number, self._subjects[number]) for number in sorted(found)]

    def _rarest_first(self, words: Set[str]) -> list[str]:
        """Return the beginnings that two words have in common if they are one in two forms."""
        stems = {word[:FEWEST_LETTERS_OF_STEM] for word in words}
        return sorted(stems, key=lambda stem: (len(self._by_stem.get(stem, ())), stem))


def _most_own(subject: Set[str]) -> int:
    """Return how many words the smaller one of two alike subjects may have alone."""
    return max(0, len(subject) - 1) // (MOST_OWN + 1)


def _holding(by_stem: dict[str, list[int]], stem: str, is_gone: Callable[[int], bool]) -> list[int]:
    if stem not in by_stem:
        return []
    by_stem[stem] = [number for number in by_stem[stem] if not is_gone(number)]
    return by_stem[stem]


def have_other_topics(old: str, new: str) -> bool:
    """Whether both statements mark what they are about, in Japanese or Korean, and it differs."""
    if old.isascii() or new.isascii():
        return False
    one, other = _TOPIC_OF.match(old), _TOPIC_OF.match(new)
    return one is not None and other is not None and one.groups() != other.groups()


def is_subject(value: Entity, text: str) -> bool:
    """Whether a number or a code is what its sentence is about: "PR 231 is merged"."""
    if value.kind not in (NUMBER, IDENTIFIER) or _WIDE.search(text):
        return False
    lead = [word for word in TOKEN.findall(text[: value.start]) if word not in ARTICLES]
    behind = [word.casefold() for word in TOKEN.findall(text[value.end :])]
    goes_on = bool(behind) and behind[0] not in PREPOSITIONS | UNITS
    return goes_on and not BESIDE_VALUE.search(text[: value.start]) and len(lead) <= MOST_LABEL

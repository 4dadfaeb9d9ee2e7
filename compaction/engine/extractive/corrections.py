"""What says that a statement corrects an older one, or takes it back, in every language read.

A cue says that something changed, not what: that is told by the two statements (replacing.py).
"""

from __future__ import annotations

import re

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.contrasts import DENIES
from compaction.engine.extractive.cues import cue, is_question
from compaction.engine.extractive.sentences import remembered, word_set, words_in
from compaction.engine.extractive.shifts import SHIFT_WORDS
from compaction.engine.extractive.terms import LONGEST_REMEMBERED, STOP_WORDS, pairs_of, words_of
from compaction.engine.fidelity.entities import find_entities
from compaction.engine.fidelity.languages import FUNCTION_WORDS

CUE_WORDS = (
    word_set(
        "sorry actually correction wait scratch forget mistake oops meant misspoke second thought "
        "change changed update edit longer anymore instead switched moved renamed replaced "
        "corrected "
        "plan plans list take cross strike remove drop leave delete skip "
        "sul sulla sullo sulle nel nella nello nelle della dello delle degli alla allo alle dalla "
        "numa num pela pelo beim migrated relocated replaces supersedes sostituisce sostituito "
        "ersetzt "
        "remplace remplacé reemplaza sustituye substitui substituiu vervangt заменяет заменил pasa "
        "pasó pasado subido umgezogen gezogen перенесли перенесён gegaan gestegen "
        "wurde wurden worden werd wordt viene verrà stato stata été sido fue foi será sera taken "
        "took "
        "place left retired resigned gone dropped stopped quit ceased abandoned dejado dejamos "
        "dejó "
        "laissé tomber abandonné cessé lasciato smesso deixou deixámos gestopt отказались перестал "
        "ушёл уволился parti partie raus abgelöst löst meer mehr больше вместо substituído "
        "sustituyó "
        "sustituido reemplazó sostituita vervangen заменили gestiegen gesunken gefallen erhöht "
        "gesenkt "
        "rose risen fell fallen dropped raised lowered augmenté monté baissé migré aumentado "
        "bajado "
        "ушли слезли съехали quitté gewisseld veranderd gewijzigd cambiado cambiato cambió changé "
        "geändert сменился сменилась "
        "aumentato salito sceso subiu desceu gedaald вырос выросла снизился снизилась поднялась"
    )
    | word_set(SHIFT_WORDS)
    | set(FUNCTION_WORDS)
)
"""Words of a correction itself: two of them have nothing in common by that."""

_CORRECTION = cue(
    "sorry actually correction wait scratch forget mistake bad oops meant misspoke make thought "
    "change changed plans update edit no longer not switched moved renamed rescheduled postponed "
    "replaced replace corrected bumped instead entschuldigung doch nein moment stattdessen nicht "
    "entschuldige entschuldigen leid vergiss korrektur perdona siento olvida oublie oubliez "
    "désolée "
    "statt perdón realidad mejor ya lugar vez pardon fait finalement désolé lieu plus "
    "korrektur berichtigung corrección correzione correção correctie rectification rectificación "
    "aktualisierung mise ach oh ah ups hoppla oei "
    "scusa scusate anzi desculpa desculpe aliás verbeter eigenlijk "
    "wrong mixed vertan geirrt verwechselt verschrieben vertippt meinte trompé trompée confondu "
    "voulais equivoqué equivocado quise quería confundí sbagliato sbagliata sbagliavo volevo "
    "geändert changé cambiado cambió cambiato cambiata mudou veranderd gewijzigd сменился "
    "сменилась изменился изменилась изменилось поменялся поменялась intendevo confuso enganei "
    "errei queria quis confundi vergiste vergist bedoelde",
    r"^(?:(?:oh|hm+|ah|no|ok(?:ay)?|yes|so|and|but|well)[,.!]? )*(?:sorry\b|actually\b|"
    r"correction\b|wait\b|scratch that|forget (?:that|it|what i said)|my (?:mistake|bad)|oops|"
    r"i (?:meant|misspoke)|make (?:that|it)\b|on second thought|change of plans?|update:|edit:|"
    r"no[,:—-] )",
    r"\bno longer\b|\bnot any ?more\b",
    # "The supplier has changed: it is ..."
    r"\b(?:(?:has |have )?changed|(?:hat|haben) sich geändert|(?:a|ont) changé|(?:ha|han) cambiado|"
    r"cambió|è cambiat[oa]|mudou|is (?:veranderd|gewijzigd)|(?:сменил|изменил|поменял)(?:ся|ась|"
    r"ось|ись)) ?[:;,—]",
    r"\b(?:has|have|is|was|are|were|been|got|we|i) (?:now )?(?:changed|switched|moved|renamed|"
    r"rescheduled|postponed|replaced|corrected|bumped) (?:\w+ ){0,4}?(?:to|with|by|from)\b",
    r"\bnot \S{1,30},? but \S|\breplaced? \S{1,40} (?:with|by)\b",
    r"\S+ instead(?: of (?:\S+ ){0,4}\S+)?[.!]?$",
    r"^(?:entschuldig(?:ung|e|en sie)?|tut mir leid|doch|nein[,:]|moment|korrektur)\b"
    r"|\bvergiss (?:das|es)\b|\b(?:stattdessen|nicht mehr|statt)\b",
    r"^(?:perdón|perdona|lo siento|olvida (?:eso|lo)|en realidad|mejor|no[,:])"
    r"|\b(?:ya no|en lugar de|en vez de)\b",
    r"^(?:pardon|en fait|finalement|désolée?|oublie(?:z)? (?:ça|cela))"
    r"|\b(?:au lieu de|ne .{1,20} plus)\b",
    r"^(?:\S+ )?(?:correction|korrektur|berichtigung|corrección|correzione|correção|correctie|"
    r"rectification|rectificación|update|aktualisierung|mise à jour)\b ?[:,]",
    r"^(?:ach|oh|ah|ups|hoppla|oei)[,!]? (?:nein|non?|nee|não)\b",
    r"^(?:scusate?|anzi|desculpe?|aliás|sorry|verbeter|eigenlijk)\b",
    # "I was wrong about the mill": what follows is the value that holds.
    r"\bi (?:meant|misspoke|was wrong|mixed (?:it |that |them |this )?up|"
    r"got (?=(?:[^\s,;:.]+ ){1,6}?wrong\b))",
    r"\b(?:(?:mich|habe) .{0,40}\b(?:vertan|geirrt|verwechselt|verschrieben|vertippt)|ich meinte|"
    r"suis trompée?|ai confondu|voulais dire|me equivoqué|me he equivocado|qu(?:ise|ería) decir|"
    r"confundí|mi sono sbagliat[oa]|mi sbagliavo|volevo dire|intendevo|ho confuso|enganei-me|"
    r"me enganei|errei|queria dizer|quis dizer|confundi|vergiste me|me .{0,30}vergist|"
    r"ik bedoelde)\b",
    wide=r"弄错|口误|言い間違|勘違い|잘못 말|착각|실수|أخطأت|أقصد|تصحيح"
    r"|\b(?:ошибся|ошиблась|перепутала?|оговорил\w{1,3}|имела? в виду)\b"
    r"|改成|改为|改到|更正|不对，|忘掉|抱歉，|对不起，|说错|换成|不是.{1,20}(?:而是|是)|其实是|"
    r"搞错|记错"
    r"|間違え|訂正|忘れて|すみません、|じゃなくて|ではなく|아니라|정정|바꿔|잊어|미안"
    r"|^(?:извини|простите|забудь|прости|на самом деле|нет,|поправка)"
    r"|\b(?:вместо|больше не)\b"
    r"|بدلا من|عفوا|تم (?:تأجيل|تقديم|نقل|تغيير|تمديد|رفع|خفض)|تأجلت?|تغيرت?",
)
_SHIFT = lazy_pattern(
    rf"\b(?:{'|'.join(SHIFT_WORDS.split())}) (?:\S+ ){{0,5}}?(?:to|until|auf|à|a|al|para|naar|"
    r"на|до) (?P<digit>(?=(?:\S+ )?\S*\d))?",
    re.I,
)
"""What was shifted may stand behind the verb: "they raised the limit to 1,000"."""
_SHIFTING_WORDS = word_set(SHIFT_WORDS)
FEWEST_LETTERS = 4
"""Of a word that can be a subject where small words are many: "nos han ampliado"."""
AROUND = ".,;:!?()\"'“”‘’"
_REMOVAL = cue(
    "take cross strike remove drop scratch leave delete skip",
    r"\b(?:take|cross|strike|remove|drop|scratch|leave|delete)\b.{1,60}?\b(?:off|from|out of)\b"
    r".{0,30}?\b(?:list|order|cart|plan|agenda|itinerary|schedule|menu|booking|basket|calendar|"
    r"scope)\b",
    # An order: "the skip rule is gone" takes nothing off.
    r"^(?:(?:ok(?:ay)?|yes|no|oh|and|so|then|also|now|well|sorry|actually|please|just|let['’]?s|"
    r"let us|we (?:can|should|could)|you (?:can|should)|(?:can|could|would) (?:you|we))[,.!]? )*"
    r"(?:remove|drop|scratch|delete|skip|take (?:off|out)|leave out) "
    r"(?!that\b|it\b)[^,:;]{2,40}$",
    wide=r"(?:从|把).{1,20}(?:去掉|删掉|划掉|拿掉)",
)
AS_WELL = lazy_pattern(
    r"\b(?:also|too|as well|another|additionally|besides|more|auch|ebenfalls|außerdem|aussi|"
    r"également|también|además|anche|inoltre|também|além|ook|eveneens|тоже|также|ещё)\b"
    r"|[也还還]|أيضا|もまた|도 ",
    re.I,
)
"""What says that a thing holds beside another one."""
_HIRAGANA = lazy_pattern("[\u3041-\u309f]+")
"""Endings and particles, which no statement is about."""


@remembered(longest=LONGEST_REMEMBERED)
def is_correction(text: str) -> bool:
    """Whether a statement changes or takes back what was said before; a question never does."""
    words = words_in(text)
    if is_question(text):
        return False
    corrects = _CORRECTION.is_in(text, words) or _shifts(text, words)
    corrects = corrects and not AS_WELL.search(text)
    return corrects or _REMOVAL.is_in(text, words)


def _shifts(text: str, words: frozenset[str]) -> bool:
    """Whether a statement says that a number or a date was moved to another one."""
    if _SHIFTING_WORDS.isdisjoint(words):
        return False
    match = _SHIFT.search(text)
    if match is None or match["digit"] is None:
        return False
    return not DENIES.search(text, 0, match.end())


def shifted(text: str) -> frozenset[str]:
    """Return the words before the value that something was moved to; none where nothing was.

    Small words, and those of moving, are left out; of signs, single capitals and numbers are in.
    """
    if _SHIFTING_WORDS.isdisjoint(words_in(text)) or not (match := _SHIFT.search(text)):
        return frozenset()
    lead = text[: match.end()].split()
    # "Van" says where in Dutch, and what in English.
    is_english = lead[-1] in ("to", "until")
    small = _SHIFTING_WORDS | STOP_WORDS | (frozenset() if is_english else FUNCTION_WORDS)
    fewest = 2 if is_english else FEWEST_LETTERS
    words = (word.strip(AROUND) for word in lead)
    return frozenset(
        word.casefold()
        for number, word in enumerate(words)
        if word.casefold() not in small
        and (len(word) >= fewest or (number and word[:1].isupper()) or word.isdecimal())
    )


def is_removal(text: str) -> bool:
    """Whether a statement takes something off a list, an order or a plan."""
    return _REMOVAL.is_in(text, words_in(text))


@remembered(longest=LONGEST_REMEMBERED)
def subjects_of(text: str, *, cued: bool) -> frozenset[str]:
    """Return the words that a statement is about, those left out that say it corrects another."""
    if cued:
        for cues in (_CORRECTION.pattern, _CORRECTION.wide):
            text = cues.sub(_only_names, text, 1)
    pairs = (pair for pair in pairs_of(text) if not _HIRAGANA.fullmatch(pair))
    return frozenset((*words_of(text), *pairs)) - CUE_WORDS


def _only_names(cue: re.Match[str]) -> str:
    """Return what a cue names besides: "ne tourne plus", "we moved the fee from"."""
    if cue[0].endswith((" from", " to", " with", " by")):
        return cue[0]
    return f" {' '.join(one.text for one in find_entities(cue[0]))} "

"""Which part of a statement says what does not hold, beside what does: "not X but Y".

No negation alone takes anything back: each of these ways names the value that holds in the same
sentence. Languages put the mark before the old value, behind it, or around both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import word_set, words_in

MOST_CHARACTERS = 60
"""Of the part that does not hold, with the verb that may stand in it."""

# "Not only X but also Y" takes nothing back, whatever the language.
_ONLY = (
    r"(?!(?:only|just|merely|simply|nur|bloß|seulement|uniquement|sol[oa]|sólo|solamente|"
    r"só|somente|apenas|soltanto|solamente|alleen|slechts|только|лишь|فقط)\b)"
)
_NOT = r"(?:not|\w+n['’]t|nicht|kein\w{0,2}|pas|plus|non|no|não|niet|geen|не)"
_CLAUSE_ENDS = r"(?=[,.;:!?)]|$)"


NEWER_FIRST = "newer"
"""What replaces another thing opens its sentence."""
OPENING = (NEWER_FIRST, "q", "u")
AFFIRMED = frozenset({*OPENING, *"rstodew"})
"""What is taken back by a verb or by "instead of": a denial of it denies that."""
BUT = "but"
"""What is said behind this word may be anything: the value that holds, or something else."""


def _part(name: str) -> str:
    """Return the pattern of a part; full stops inside versions and names belong to it.

    No two branches can take the same character: else a run of them is tried in all ways.
    """
    part = r"[^,.;:!?。！？，、\n]|[.:,](?=\S)|(?<=\d)\.(?!\S)"
    return rf"(?P<{name}>(?:{part}){{1,{MOST_CHARACTERS}}}?)"


_MARKS = word_set(
    "not nicht kein keine keinen keinem keiner pas plus non no não niet geen не а instead rather "
    "statt anstatt anstelle lieu plutôt lugar vez invece posto invés plaats вместо from von de da "
    "du des della dal del do van с со swapped traded exchanged replaced cambiamos cambié cambiado "
    "cambiato abbiamo trocámos trocamos troquei remplacé remplaçons reemplazamos ersetzt ersetzen "
    "vervangen заменили заменил заменила said sagte dit dije detto disse zei сказал сказала "
    "scrap forget drop ditch vergiss vergesst oublie oubliez olvida dimentica esquece vergeet "
    "забудь strike streich raye tacha cancella risca schrap вычеркни replaces supersedes ersetzt "
    "remplace reemplaza sustituye sostituisce substitui vervangt заменяет used früher bisher avant "
    "auparavant antes prima vroeger eerder раньше прежде was were formerly previously war было off "
    "away had stimmt true vrai cierto verdad vero verdade klopt неправда più уже больше "
    "place gave superseded löst abgelöst stelle remplacera remplacée reemplazó reemplazará "
    "reemplazado "
    "reemplazada sustituyó sustituirá sustituido sustituida sostituì sostituirà sostituito "
    "sostituita substituirá substituído substituída verving vervangt сменил сменила сменили "
    "заменяют заменён заменена смену dropped stopped quit ceased abandoned abgeschafft dejado "
    "dejamos dejó laissé abandonné cessé lasciato smesso deixou deixámos deixamos largámos "
    "gestopt stopt отказались перестали left retired out raus gegangen weg parti partie partida "
    "retiré retirée fue salió jubiló andato andata saiu reformou vertrokken ушёл ушел ушла "
    "уволился уволилась told wrote thought dachte sagte schrieb pensais croyais écrit pensaba "
    "creía "
    "escribí pensavo credevo scritto pensava achava disse escrevi dacht zei schreef думал думала "
    "написал написала abandonato abandonado quitté ушли слезли съехали"
)
_PLACE = (
    r"(?=[,.;:!?)]|$| (?:on|in|at|for|as|als|come|comme|como|bei|für|auf|pour|dans|en|na|no|"
    r"em|per|nella?|bij|voor|в|на|для|у|para|por|pela?|pelo|sur|dans|durch|als|as|since|seit|"
    r"depuis|desde|da|sinds|с|со)\b)"
)
_REPLACES = (
    r"(?:(?:will )?replaces?|(?:has |have )?replaced|supersedes?|superseded|"
    r"(?:takes|took|has taken) the place of|ersetzt|ersetzte|"
    r"tritt an die Stelle von|(?:a |ont )?remplac(?:e|era|ent|é)|prend la place d[eu]|"
    r"(?:ha )?(?:reempla(?:za|zó|zará|zado)|sustitu(?:ye|yó|irá|ido))(?: al?)?|"
    r"(?:ha )?sostitu(?:isce|ì|irà|ito)|prende il posto d[ie]l?|"
    r"(?:vai )?substitu(?:i|iu|irá|ir)|toma o lugar d[aeo]|(?:vervangt|verving|vervangen)|"
    r"neemt de plaats in van|замен(?:яет|яют|ил|ила|ило|или)|смен(?:ил|ила|ило|или)|на смену)"
)
_ARTICLE = (
    r"(?:(?:the|der|die|das|den|le|la|les|el|los|las|il|lo|o|a|os|as|de|het|our|unser\w{0,2}) )?"
)
_HELD = (
    r"(?:(?:was|were|is|are|has been|have been|gets?|got) replaced (?:by|with)|"
    r"(?:wurden?|wird|werden|ist|sind) (?:\w+ )?(?:durch|von) [^.,;:]{1,40} (?:ersetzt|abgelöst)|"
    r"(?:a été|ont été|est|sont|sera) remplacée?s? par|"
    r"(?:ha sido|fue|es|será) (?:sustituid|reemplazad)[oa] por|"
    r"(?:è stat[oa]|viene|è|verrà) sostituit[oa] (?:da\b|dal)|"
    r"(?:foi|é|será) substituíd[oa] (?:por|pel[oa])|(?:is|wordt|werd) vervangen door|"
    r"(?:заменили|сменили|заменён|заменена|заменили мы) на)"
)
_LEFT = (
    r"(?:(?:has |have )?(?:left|retired|resigned|quit)|is (?:out|gone)|hat aufgehört|"
    r"ist (?:raus|weg|"
    r"gegangen|ausgeschieden)|est parti[e]?|a (?:pris sa retraite|quitté [^,;:]{1,20})|"
    r"se (?:fue|ha "
    r"ido|jubiló)|è andat[oa] (?:via|in pensione)|saiu|reformou-se|is (?:vertrokken|weg)|"
    r"уш(?:ёл|ел|ла)|уволил(?:ся|ась))"
)
_FAVOURS = (
    r"(?:(?:and|und|et|y|e|en|и)\b|in favou?r of|zugunsten|au profit d[eu]|(?:a|en) favor de|"
    r"a favore d[ie]l?|em favor d[eoa]|ten gunste van|в пользу)"
)
"""Behind what was given up: what somebody does now."""
_DROPS = (
    r"(?:(?:we|i|they)(?:['’]ve| have)? (?:dropped|ditched|abandoned|retired|gave up|got rid of)|"
    r"(?:stopped|quit|ceased)(?: \w+ing)?(?: (?:with|on|at|in|to))?|"
    r"(?:hemos|he|han) dejado(?: de \w+)?|(?:ha|han) dejado de \w+|dej(?:amos|é|ó|"
    r"aron)(?: de \w+)?|"
    r"(?:on a|nous avons|j['’]ai) (?:laissé tomber|abandonné|arrêté)|a cessé d(?:e |['’])\w+|"
    r"(?:abbiamo|ho) (?:lasciato|abbandonato|smesso di \w+)|ha smesso di \w+|"
    r"deix(?:ou|ámos|amos|ei|aram)(?: de \w+)?|largámos|(?:we|ik) zijn gestopt met|"
    r"отказались от|перестал[аи]? \w+|"
    r"(?:we|i)(?:['’]ve| have)? (?:moved|migrated|got|come) off|(?:wir sind|ich bin) (?:weg )?von|"
    r"(?:on a|nous avons) quitté|(?:мы )?(?:ушли|слезли|съехали) с)"
)
_SWAPPED = (
    r"(?:swapped|traded|exchanged|replaced|cambi\w{1,6}|troc\w{1,6}|remplac\w{1,6}|"
    r"sostitui\w{1,6}|substitu\w{1,6}|reemplaz\w{1,6}|ersetz\w{1,4}|vervang\w{0,4}|заменил\w{0,2})"
)
_LATIN = lazy_pattern(
    "|".join(
        (
            # Not X but Y.
            rf"\b{_NOT} {_ONLY}{_part('a')},? (?:but rather|sondern|sino|pero sí|bensì|mas sim|"
            rf"e sim|senão|а)\b (?!auch\b|también\b|anche\b|também\b|и\b)",
            rf"\b{_NOT} {_ONLY}{_part(BUT)},? (?:but|mais|ma|mas|maar)\b "
            rf"(?!also\b|aussi\b|anche\b|também\b|ook\b)",
            # No longer X, now Y; it used to be X, now Y.
            r"\b(?:ya no|больше не|уже не|no longer|já não|niet (?:langer|meer)|nicht mehr|plus|"
            rf"più) {_part('i')}(?:[,;]| (?:but|sondern|sino|mais|ma|maar|mas|а)\b)",
            rf"\b{_NOT} {_part('j')} any ?(?:more|longer)\b",
            r"\b(?:used to|früher|bisher|avant|auparavant|antes|prima|vroeger|eerder|раньше|"
            rf"прежде)\b{_part('k')}, (?:(?:but|and|aber|mais|pero|ma|mas|maar|а|но) )?"
            r"(?:now|heute|jetzt|nun|maintenant|désormais|ahora|hoy|agora|hoje|adesso|ora|oggi|"
            r"nu|теперь|сейчас)\b",
            r"\((?:was|were|formerly|previously|früher|bisher|avant|antes|prima|eerder|раньше|"
            rf"было) {_part('l')}\)",
            rf"\b(?:es stimmt nicht|(?:it is|it's|that's) not true|n['’]est pas vrai|"
            rf"no es (?:cierto|verdad)|non è vero|não é verdade|klopt niet|неправда),? "
            rf"(?:dass|that|que|che|dat|что) {_part('m')}[,;] ",
            # Y replaces X.
            rf"\b{_REPLACES} {_ARTICLE}{_part(NEWER_FIRST)}{_PLACE}",
            rf"\b(?:löst|lösen|löste) {_part('q')} (?:als [^.,;:]{{1,30}} )?ab\b",
            rf"\b(?:hat|haben|heeft|hebben) {_part('u')} (?:abgelöst|ersetzt|vervangen)\b",
            # X was replaced by Y; X has left: it is Y; we dropped X, it is Y.
            rf"(?:^|[,;:] ){_ARTICLE}{_part('r')} {_HELD}\b",
            rf"^{_ARTICLE}{_part('s')} {_LEFT}(?:[,;:]| (?:and|und|et|y|e|en|и)\b) ?(?=\S+ \S+)",
            rf"\b{_DROPS} {_ARTICLE}{_part('t')}(?:[,;:]| {_FAVOURS}) ?(?=\S+)",
            rf"\b(?:off|away from) {_part('o')} (?:on)?to ",
            rf"\b(?:i|we) had {_part('p')} wrong\b",
            rf"(?:\b(?:is|are|was|were)|(?<=it)['’]s|(?<=that)['’]s)(?: not|n['’]t) "
            rf"{_ONLY}{_part('b')}"
            rf"[,;—] ?(?:it|that|this|they)(?:['’]s|['’]re| is| are) ",
            rf"\b(?:ist nicht|n['’]est pas|no es|non è|não é|is niet|не) {_ONLY}{_part('x')}"
            rf"[,;—] ?(?:(?:es|das|er|sie) ist|c['’]est|es|è|é|(?:het|dat) is|это) ",
            # Y, not X.
            rf"(?:,|\b(?:and|und|et|y|e|en|и)|, а) (?:not|nicht|pas|non(?: pas)?|no|não|niet|не) "
            rf"{_ONLY}{_part('c')}{_CLAUSE_ENDS}",
            # Y instead of X.
            r"\b(?:instead of|rather than|in place of|statt|anstatt|anstelle(?: von)?|"
            r"au lieu d[eu]|"
            r"plutôt que?|à la place d[eu]|en (?:lugar|vez) del?|más bien que|invece (?:di|che)|"
            r"al posto di|piuttosto che|em vez d[eoa]|ao invés d[eoa]|no lugar d[eoa]|"
            rf"in plaats van|вместо)['’ ]{_part('d')}"
            r"(?=[,.;:!?)]|$| (?:we|wir|nous|nimmt|nutzt)\b)",
            # I said X, I meant Y; forget X, it is Y.
            rf"\b(?:i said|ich sagte|j['’]ai dit|dije|ho detto|eu disse|ik zei|я сказала?) "
            rf"{_part('g')}[,;] (?:\S+ )?(?:i meant|ich meinte|je voulais|quise|quería|volevo|"
            rf"intendevo|queria|quis|ik bedoelde|имела? в виду)",
            # I told you it was X, it's really Y.
            r"\b(?:i (?:told you|said|wrote|thought)|ich (?:dachte|sagte|schrieb)|je (?:pensais|"
            r"croyais)|j['’]ai (?:dit|écrit)|pensaba|creía|dije|escribí|pensavo|credevo|"
            r"ho (?:detto|scritto)|pensava|achava|disse|escrevi|ik (?:dacht|zei|schreef)|"
            rf"я (?:думал|сказал|написал)а?),? {_part('w')}[,;—] ?(?:(?:but|aber|mais|pero|ma|mas|"
            r"maar|а|но) )?(?:(?:it|that)(?:['’]s| is| was)|(?:es|das|het|dat) (?:ist|sind|is)|"
            r"c['’]est|es|son|"
            r"è|sono|é|são|это|на самом деле)\b",
            rf"^(?:strike|streich|rayez?|tacha|cancella|risca|schrap|вычеркни|scrap|forget|drop|"
            rf"ditch|vergiss|vergesst|oubliez?|olvida|dimentica|esquece|vergeet|"
            rf"забудь) (?!about\b|that\b){_part('h')}[,;:] (?=\S+ \S+)",
            # We swapped X for Y.
            rf"\b{_SWAPPED} {_part('e')} (?:for|with|by|durch|gegen|par|contre|por|con|per|door|"
            rf"voor|на) ",
        )
    ),
    2,
)
_MOVES = lazy_pattern(
    r"\b(?:upgraded|downgraded|moved|migrated|switched|changed|relocated|shifted|bumped|raised|"
    r"lowered|postponed|"
    r"(?:went|goes|gone) (?:up|down)|rose|risen|rises|fell|fallen|falls|dropped|climbed|jumped|"
    r"grew|"
    r"grown|cut|reduced|increased|gestiegen|gesunken|gefallen|erhöht|gesenkt|steigt|sinkt|"
    r"augmenté\w{0,2}|monté\w{0,2}|baissé\w{0,2}|descendu\w{0,2}|migré\w{0,2}|déménagé|"
    r"mov\w{1,6}|pasado|aumentado|salit[oa]|sces[oa]|sub\w{1,4}|desc\w{1,4}|gestegen|gedaald|"
    r"вырос\w{0,2}|поднял\w{1,3}|снизил\w{1,3}|упал\w{0,2}|"
    r"subido|bajado|pasa|aument\w{1,4}|um(?:gestellt|gestiegen|gezogen)|ge(?:wechselt|ändert|"
    r"gangen)|gewisseld|gegaan|"
    r"overgestapt|"
    r"verhuisd|verplaatst|verschoben|verlegt|pass[ée]e?s?|chang[ée]e?s?|déplacée?s?|reportée?s?|"
    r"pasó|pasamos|pasaron|cambi\w{1,6}|mud\w{1,6}|migr\w{1,6}|traslad\w{1,6}|passat[oaie]|"
    r"spostat[oaie]|passou|passámos|passamos|alter\w{1,6}|перешл[аио]|перешел|перешёл|перев\w{1,5}|"
    r"перенес\w{0,4}|перенёс|сменил\w{0,2}|переехал\w{0,2})\b",
    2,
)
_FROM = lazy_pattern(
    rf"\b(?:from|von|vom|de|du|des|del?|dal?|dalla|do|da|van|с|со) {_part('f')} "
    r"(?:to|auf|zu|zum|nach|in|à|au|en|a|al|alla|hasta|para|pour|vers|naar|op|на|к|до|в) ",
    2,
)
_WIDE = lazy_pattern(
    "|".join(
        (
            rf"(?<!是)不是(?!只|仅|单){_part('a')}[，,]?\s?(?:而是|是)",
            rf"(?:[，,而]|而且)不(?:是|用|再用|要用){_part('b')}(?=了|[，,。.!！]|$)",
            rf"不再?(?:是|用|住|在|去|叫|走|喝|吃)?{_part('q')}了[，,]\s?(?:搬|换|改|现在|转|去|"
            rf"用|住|是)",
            rf"不再?(?:是|用|住|在|去|叫|走|喝|吃)?{_part('s')}[，,]\s?(?:改|换|而|现在)",
            rf"把{_part('t')}(?:换成|换为|改成|改为)",
            r"(?:^|[，,。])(?P<z>[^，,。]{2,20}?)(?:已经?)?被[^，,。]{1,20}(?:取代|代替|"
            r"替换|替代|接替)",
            r"(?:^|[，,。])(?P<za>[^，,。]{2,12}?)(?:已经?)?(?:离职|退休|调走|走|不再(?:负责|"
            r"担任|管)"
            r"[^，,。]{0,20})了?[，,；;]",
            r"(?:^|[はがを、。\s])(?P<zb>[^はがを、。]{1,30}?)(?:を[^、。]{1,30}(?:に|で)置き換え"
            r"|から[^、。]{1,30}?(?:に|へ)代わ)",
            r"(?:が|は)(?P<zc>[^はがを、。]{1,30}?)に取って代わ",
            r"(?:^|\s)(?P<zd>\S{1,30}?)(?:을|를) (?:대체|\S{1,30}?로 (?:대체|교체))",
            rf"\bمحل\s{_part('ze')}(?=[،.؟!]|$)",
            rf"\b(?:استبدلنا|استبدل)\s{_part('zf')}\sب",
            rf"(?:以前|之前|原来|原先|本来){_part('u')}[，,](?:但|但是|不过)?(?:现在|如今|目前)",
            r"(?:以前|前)は(?P<v>[^、。]{1,30})、(?:今|現在)は",
            r"(?:^|[はがを、。\s])(?P<w>[^はがを、。]{1,30}?)を(?:やめて|廃止して)",
            r"(?:예전|전|이전)에는? (?P<x>[^,.]{1,30}), ?(?:지금|이제)",
            rf"\bلم تعد\s{_part('y')}\s(?:بل|وإنما)\b",
            rf"从{_part('c')}(?:换成|换到|改成|改为|改到|变成|切换到|迁移到|转到|搬到|挪到|"
            rf"推迟到|提前到|"
            r"[涨升降减增加提调高低到至]{1,3}[到至])",
            rf"(?:代替|取代|替换|替代|接替)了?{_part('d')}(?=[，,。.!！]|$)",
            # Japanese and Korean put it behind.
            r"(?:^|[はがを、。\s])(?P<e>[^はがを、。]{1,30}?)(?:では|じゃ|で)なく(?!ても)",
            r"[、。](?P<f>[^はがを、。]{1,30}?)(?:では|じゃ)(?:ありません|ない)",
            r"(?:^|[はがを、。\s])(?P<g>[^はがを、。]{1,30}?)から[^、。]{1,30}?(?:に|へ)"
            r"(?:変更|変わ|変え|移|切り替|乗り換|延期|上が|下が|値上|値下|引き上|引き下)",
            r"(?:^|[はがを、。\s])(?P<h>[^はがを、。]{1,30}?)の代わりに",
            r"(?:^|\s)(?P<i>\S{1,30}?)(?:이|가)? ?(?:아니라|아니고|말고)",
            r"(?:고|며|,) (?P<j>\S{1,30}?)(?:은|는|이|가) 아(?:닙니다|니에요|니야|니다)",
            r"(?:^|\s)(?P<zg>\S{1,30}?)(?:은|는|을|를) (?:이제 |더 ?이상 )?"
            r"(?:안|그만) \S{1,6}고 ",
            r"(?:^|\s)(?P<k>(?:(?!\S*[이가은는] )\S{1,15} )?\S{1,30}?)에서 (?:\S{1,15} )?"
            r"\S{1,30}?로 ?(?:바꿨|바뀌|바뀝|바꾸|변경|옮|교체|"
            r"전환|이전|올랐|오릅|"
            r"올라|내렸|내립|내려|인상|인하)",
            r"(?:^|\s)(?P<l>\S{1,30}?) 대신",
            # Arabic.
            rf"\b(?:ليس|ليست|لا|لم|لن)\s(?!فقط){_part('m')}\s?،?\s?(?:بل|وإنما|إنما|ولكن)\b",
            rf"\b(?:وليس|وليست|لا)\s{_part('n')}(?=[،.؟!]|$)",
            rf"\b(?:بدلا|بدلاً|عوضا|عوضاً)\s(?:من|عن)\s{_part('o')}(?=[،.؟!]|$)",
            rf"\b(?:انتقل\w*|تغير\w*|نقلنا|غيرنا|حول\w*)\b.{{0,30}}\bمن\s{_part('p')}\sإلى\b",
        )
    )
)

_BREAK = lazy_pattern(r"[,.:;!?](?=\s)|[。！？，、؟،\n]")
_CONDITION = lazy_pattern(
    r"\b(?:if|unless|whether|suppos(?:e|ing)|assum(?:e|ing)|imagine|wenn|falls|ob|angenommen|indien"
    r"|если|إذا|لو"
    # Perhaps it is so.
    r"|maybe|perhaps|possibly|(?:suggest|propose|hope|wonder)\w* that|vielleicht|eventuell"
    r"|peut-être|quizás?|tal vez|forse|talvez|misschien|wellicht|возможно|может быть|ربما)\b"
    r"|如果|要是|假如|也许|可能|もし|かもしれ|만약|만일|아마",
    re.I,
)
_DOUBT = lazy_pattern(
    r"\b(?:i (?:think|guess|believe|suppose|heard)|wish|promised?|asked|propos\w{1,4}|"
    r"suggest\w{0,3}|refused?|declined|not (?:so |quite |entirely )?sure|no idea|"
    r"probably|might|may (?:be|have)|could (?:be|have)|apparently not|glaube|vermutlich|"
    r"wahrscheinlich|wohl|könnte|bin (?:mir )?nicht sicher|je crois|je pense|probablement|pourrait|"
    r"pas sûre?|creo que|probablemente|podría|no estoy segur[oa]|credo|penso che|probabilmente|"
    r"potrebbe|non sono sicur[oa]|acho que|provavelmente|poderia|não tenho certeza|denk ik|"
    r"ik geloof|waarschijnlijk|misschien|niet zeker|кажется|наверное|вероятно|думаю|не уверена?)\b"
    r"|好像|大概|应该是|估计|不确定|たぶん|と思い|かな。?$|らしい|것 같|아마|أظن|أعتقد|ربما",
    re.I,
)
_OPENS_CONDITION = lazy_pattern(r"\s*(?:had|should|sollten?|si|se|caso|als|stel)\b", re.I)
"""What says so where another clause stands behind: "si" and "se" are other words, too."""
DENIES = lazy_pattern(
    r"\b(?:not(?! (?:only|just))|\w+n['’]t|cannot|never|nobody|no (?:one|longer)|neither"
    r"|nicht(?! nur)|niemals|nie|niemand|kein\w{0,2}|ne|pas|jamais|nunca|nadie|non(?! solo)"
    r"|nessuno|não(?! só)|ninguém|niet(?! alleen)|nooit|niemand|geen|не|никто)\b"
    r"|\bn['’](?=\w)",
    re.I,
)
"""What says that something is not so; never what is "not only" so."""
_DENIES_NEXT = lazy_pattern(r"\bno (?:\w{1,6} ){0,2}\Z", re.I)
"""In Spanish; in Portuguese the word says where, too."""
_DENIES_BEHIND = lazy_pattern(r" (?:nicht|niet|nie|nooit)\b", re.I)


class Denied(NamedTuple):
    """The part of a statement that says what does not hold.

    Behind a bare "but", `rest` is where it goes on; else -1. `opens`: the value that holds opens
    the sentence.
    """

    start: int
    end: int
    rest: int = -1
    opens: bool = False


def parts_taken_back(text: str) -> Iterator[Denied]:
    """Yield what a statement says that does not hold, where another part says what does.

    What would be under a condition, and what is denied ("Y does not replace X"), takes nothing
    back.
    """
    if not _MARKS.isdisjoint(words_in(text)) or "n't" in text or "n’t" in text:
        for match in _LATIN.finditer(text):
            group = str(match.lastgroup)
            if _is_said_to_be(text, match, affirmed=group in AFFIRMED):
                rest = match.end() if group == BUT else -1
                yield Denied(*match.span(group), rest, opens=group in OPENING)
        moves = _MOVES.search(text)
        is_denied = moves and _DENIES_NEXT.search(text, 0, moves.start())
        moved = _FROM.search(text) if moves and not is_denied else None
        if moved and _is_said_to_be(text, moved, affirmed=True):
            yield Denied(*moved.span("f"))
    if not text.isascii():
        for match in _WIDE.finditer(text):
            if _is_said_to_be(text, match, affirmed=False):
                yield Denied(*match.span(str(match.lastgroup)))


def is_doubted(text: str) -> bool:
    """Whether a statement has a condition in it, or words of somebody who is not sure."""
    opens = _OPENS_CONDITION.match(text) and _BREAK.search(text)
    return bool(opens or _CONDITION.search(text)) or is_unsure(text)


def is_unsure(text: str) -> bool:
    """Whether somebody says of what they say that they are not sure of it."""
    return bool(_DOUBT.search(text))


def is_supposed(text: str) -> bool:
    """Whether a statement of one clause says that something may be so: "maybe it is Friday"."""
    return bool(_CONDITION.match(text)) and not _BREAK.search(text)


def _is_said_to_be(text: str, match: re.Match[str], *, affirmed: bool) -> bool:
    """Whether the clause of a match says that something is so: under no condition, and not denied.

    `affirmed`: what takes a value back is no denial itself.
    """
    if _DOUBT.search(text):
        return False
    start, end = match.span()
    breaks = (one.end() for one in _BREAK.finditer(text, 0, start + 2))
    first = max((place for place in breaks if place <= start + 1), default=0)
    if _CONDITION.search(text, first, end):
        return False
    if _OPENS_CONDITION.match(text, first, end) and _BREAK.search(text, end):
        return False
    if not affirmed:
        return True
    return not (
        DENIES.search(text, first, end)
        or _DENIES_NEXT.search(text, first, start)
        or _DENIES_BEHIND.match(text, end)
    )

"""What says that a value was moved or was told wrong, with the words beside it.

A shift is what stands between a subject and its new value ("was pushed back to"): read as "is", it
leaves the two statements with the same words. A slip is what opens a sentence that says a thing
again, as it should have been said at first ("Typo on my side: ...").
"""

from __future__ import annotations

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.cues import cue

_BE = r"(?:(?:has|have|had|is|was|were|are|got|gets|will|just|be|been|being) ){0,3}"
_DA = r"(?: (?:den|das|die|dem|der|de|het))?"
SHIFT_WORDS = (
    "pushed moved brought put shifted delayed extended postponed rescheduled raised lowered upped "
    "cut doubled tripled halved upgraded downgraded slipped slips slid bumped changed increased "
    "reduced transferred renamed "
    "verlegt verschoben vorgezogen geändert erhöht gesenkt aufgestockt angehoben gekürzt "
    "décalé décalée repoussé repoussée avancé avancée reporté reportée déplacé déplacée passé "
    "passée prolongé prolongée relevé relevée augmenté augmentée réduit réduite fixé fixée "
    "retrasa retrasó retrasado adelanta adelantó adelantado aplaza aplazó aplazado pospone pospuso "
    "prorroga prorrogó prorrogado traslada trasladó trasladado amplía amplió ampliado reduce "
    "redujo reducido sube baja mueve movió movido cambia cambió cambiado subido bajado "
    "alzato abbassato portato spostato spostata rinviato rinviata anticipato anticipata prorogato "
    "prorogata posticipato "
    "posticipata aumentato aumentata ridotto ridotta esteso estesa spostati spostate "
    "adiado adiada antecipado antecipada alargado alargada prolongado prolongada transferido "
    "transferida mudado mudada aumentado aumentada reduzido reduzida mudou "
    "verzet verplaatst verschoven vervroegd uitgesteld verhoogd verlaagd verlengd "
    "сдвинули сдвинута сдвинут перенесли перенесён перенесена перенесено передвинули отложили "
    "отложена отложен продлили продлён подняли снизили увеличили увеличен повысили переехал "
    "переехала"
)
"""A shift has one of these words."""
SHIFTS = (
    # In English "to" stands behind the verb, "until" behind a delay.
    rf"\b{_BE}(?:pushed|moved|brought|put|shifted|delayed|extended|postponed|rescheduled|raised|"
    r"lowered|upped|cut|doubled|tripled|halved|upgraded|downgraded|slipped|slips|slid|bumped|"
    r"changed|increased|reduced|transferred|renamed)(?: (?:back|forward|up|down|out|over|off|"
    r"again)){0,2} "
    r"(?:to|until|till)\b(?: the\b)?",
    # The participle stands at the end in German and in Dutch.
    rf"\b(?:wurden?|wird|werden|ist|sind) (?:auf|in|nach|zu[mr]?|ins|aufs){_DA}(?= .{{1,60}}"
    r"(?:verlegt|verschoben|vorgezogen|geändert|erhöht|gesenkt|angehoben|verlängert|gekürzt|"
    r"aufgestockt|umgestellt|umgezogen|verkürzt|herabgesetzt|umbenannt|reduziert)[.!]?$)",
    rf"\b(?:is|wordt|werd|zijn|worden) (?:verzet|verplaatst|verschoven|vervroegd|uitgesteld|"
    rf"verhoogd|verlaagd|verlengd|gewijzigd|hernoemd) (?:naar|tot|op){_DA}\b",
    r"\b(?:est|a été|sont|ont été|sera|seront) (?:décal|repouss|avanc|report|déplac|pass|prolong|"
    r"relev|augment|rédui|fix|transfér)(?:ée?s?|te?s?) (?:à|au|aux|jusqu['’]au?|en)\b(?: l[ae]\b)?",
    r"\b(?:(?:se|ha sido|fue|será|es|ha) ){0,2}(?:(?:se )?(?:retras|adelant|aplaz|pospon|posp|"
    r"prorrog|traslad|ampl|redu|sub|baj|mov|mu|cambi)\w{1,5}) (?:a|al|para|hasta)\b(?: (?:el|"
    r"la)\b)?",
    r"\b(?:è stat[oa]|sono stat[ie]|è|sono|viene|verrà) (?:spostat|rinviat|anticipat|prorogat|"
    r"posticipat|aumentat|ridott|estes|trasferit|portat)[oaie] (?:al?|all['’]|alle|alla|fino al?|"
    r"in)"
    r"(?:\b|(?<=['’]))",
    r"\b(?:foi|é|será|foram|ficou|vai ser) (?:adiad|antecipad|alargad|prolongad|transferid|mudad|"
    r"aumentad|reduzid|remarcad)[oa]s? (?:para|até|a)\b(?: [oa]s?\b)?|\bmudou para\b(?: [oa]s?\b)?",
    r"\b(?:сдвинул|перенесл|передвинул|отложил|продлил|поднял|снизил|увеличил|повысил|переехал)\w "
    r"(?:на|до|в|к)\b|\b(?:сдвинут|перенес[её]н|отложен|продл[её]н|увеличен|повышен)[аоы]? "
    r"(?:на|до|в|к)\b",
)
"""Read as "is"."""
SHIFTS_WIDE = (
    r"(?:已经?)?(?:推迟|提前|延期|延后|延长|追加|调整|增加|提高|降低|上调|下调|缩短|"
    r"顺延|改)(?:到|至|为)了?"
    r"|를?을? ?(?:으로|로) (?:연기|변경|조정|연장|앞당겨|미뤄|늦춰|당겨|인상|인하)"
    r"[^ .]{0,8}(?=[.!]?$)"
    r"|[にへ](?:引き上げ|引き下げ|延び|延期|早ま|繰り上|繰り下|移|変わ|変更|上が|下が)[^。、]{0,8}(?=[。.!！]?$)"
)
"""The same in scripts that part no words."""
PARTICIPLES = lazy_pattern(
    r" (?:verlegt|verschoben|vorgezogen|geändert|erhöht|gesenkt|angehoben|verlängert|gekürzt|"
    r"aufgestockt|umgestellt|umgezogen|verkürzt|herabgesetzt|umbenannt|reduziert)(?=[.!]?$)",
    2,
)
"""What a shift ends with."""

_MY = r"(?:my|meine?r?|ma|mi[ao]?|meu|minha|mijn|моя|мой)"
SLIP = cue(
    "slip typo typos correct misread mistyped miscounted miswrote disregard re-reading rereading "
    "reading "
    "look mistake error fault wrong bad told "
    "turns turned heraus stellt stellte avère trouve resulta risulta viene afinal blijkt оказалось "
    "оказывается tippfehler zahlendreher schreibfehler planänderung fehler falsch verlesen lag "
    "richtigstellung berichtigung mal autant temps read letto male misread vertan trompé trompée "
    "erreur coquille frappe corrige changement errata corrijo cambio equivocación corrige refuso "
    "errore correggo erro engano gralha mudança lapso typfout tikfout foutje mis inzien "
    "planwijziging digo rectifico rectification nee quatsch nö spelled spelt "
    "точнее вернее вообще опечатка ошибка исправляю исправление описка неправильно",
    rf"^(?:\S+ )?(?:typo|slip|mistake|error|fault)s? (?:on my|of mine|in my|there)\b[^,:;.]{{0,30}}"
    rf"|^slip of the (?:pen|tongue)|(?:{_MY} (?:typo|mistake|error|fault|bad|"
    rf"slip))\b[^,:;.]{{0,20}}"
    r"|^(?:\S+ )?(?:let me correct (?:myself|that|this)|i (?:read (?:it|that) wrong|misread|"
    r"mistyped|miscounted|miswrote)"
    r"|disregard (?:what|that|my))\b[^,:;.]{0,40}|^typo\b"
    r"|^on (?:re-?reading|closer (?:look|reading)|a second look)\b[^,:;.]{0,30}"
    r"|^(?:(?:as )?it )?turn(?:s|ed) out(?: that)?\b"
    r"|^(?:i )?told you (?:the )?wrong\b[^,:;.]{0,20}",
    r"^(?:\S+ )?(?:richtigstellung|berichtigung|tippfehler|zahlendreher|schreibfehler|"
    r"planänderung)\b[^,:;.]{0,30}"
    r"|^(?:mein fehler|ich lag falsch|das war falsch|da habe ich mich verlesen)\b[^,:;.]{0,20}",
    r"^(?:petite )?(?:erreur de ma part|coquille|au(?:tant| temps) pour moi|j['’]ai mal lu|faute "
    r"de frappe|je (?:me )?corrige|"
    r"changement de (?:plan|programme))\b[^,:;.]{0,20}",
    r"^(?:fe de )?(?:errat[ao]s?|error mío|me corrijo|corrijo|cambio de planes?|fallo mío)\b"
    r"[^,:;.]{0,20}",
    r"^(?:errata corrige|refuso|ho letto male|errore mio|(?:mi )?correggo|cambio di (?:programma|"
    r"piani?))\b"
    r"[^,:;.]{0,20}",
    r"^(?:erro meu|engano meu|gralha|lapso meu|(?:me )?corrijo|mudança de planos?)\b[^,:;.]{0,20}",
    r"^(?:typfout|tikfout|foutje|mijn fout|planwijziging|ik had het mis|bij nader inzien)\b"
    r"[^,:;.]{0,20}",
    r"^(?:es stellte? sich heraus, dass|il s['’]avère qu[e'’]|il se trouve qu[e'’]|resulta que|"
    r"risulta che|viene fuori che|afinal|het blijkt dat|оказалось, что|оказывается,?)",
    # What is said again behind these has the same words, which tells what is meant.
    r"^i (?:spel(?:led|t)|wrote|typed) (?:that|it|this) wrong\b|^(?:digo|rectifico|quatsch|nee|nö|"
    r"точнее|вернее)(?=[,:])",
    wide=r"^(?:不对|不是|いや|やっぱり|やはり)(?=[，、]|[^，、。]{2,12}は)"
    r"|^(?:原来|其实|実は|알고 보니|اتضح أن)|^(?:опечатка|описка|исправляю|"
    r"исправление|ошибка|моя ошибка|я написала? неправильно)"
    r"\b[^,:;.]{0,20}"
    r"|^(?:刚才|刚刚|之前|我)?(?:写错|打错|笔误|说错|看错|记错)了?|^(?:书き間違え|誤記|誤り)[^、。]{0,10}"
    r"|^(?:제가 )?(?:잘못 (?:적|쓰|썼|알|봤|보|말)\S{0,6}|오타\S{0,6})"
    r"|^(?:خطأ مني|خطأ مطبعي|أخطأت|تصحيح)[^،:.]{0,20}",
)
"""Only what opens a sentence is one, and what is meant stands behind it."""

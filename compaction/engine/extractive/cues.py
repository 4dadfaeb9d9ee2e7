"""What a sentence is about, where its words leave no doubt.

A heading that is wrong misleads: whatever is not sure is a fact. The words are those of the
languages that LANGUAGES of compaction.engine.extractive.headings has headings for. Each pattern is
tried only where one of its words occurs: patterns are slow, most sentences have none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.forms import count_words, is_code_line
from compaction.engine.extractive.sentences import word_set, words_in
from compaction.engine.provenance import UnitKind

RULE_WORTH = 1.5
DECISION_WORTH = 1.3
REQUEST_WORTH = 1.2
_KIND_WORTH = {
    UnitKind.RULE: RULE_WORTH,
    UnitKind.DECISION: DECISION_WORTH,
    UnitKind.REQUEST: REQUEST_WORTH,
    UnitKind.CHANGE: RULE_WORTH,
}
FEWEST_WORDS = 4
"""Of a request: shorter ones ("Please wait.") ask for nothing that outlives the next answer."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Words that say what a sentence is about: a pattern, tried only where `words` has one of them.

    Whatever the pattern finds has one of the `parts` in it: where words are so common that they
    tell little, these say at once of most sentences that it finds nothing. `wide` are cues of
    scripts that are not Latin, where words are not parted or inflected.
    """

    words: frozenset[str]
    pattern: re.Pattern[str]
    wide: re.Pattern[str]
    parts: tuple[str, ...] = ()

    def is_in(self, sentence: str, words: frozenset[str]) -> bool:
        """Whether the sentence, which has these `words`, has the cue."""
        likely = not self.words.isdisjoint(words) and self.may_be_in(sentence)
        if likely and self.pattern.search(sentence):
            return True
        return not sentence.isascii() and bool(self.wide.search(sentence))

    def may_be_in(self, sentence: str) -> bool:
        """Whether the sentence has one of the parts, without which the pattern finds nothing."""
        if not self.parts or not sentence.isascii():
            return True
        return any(map(sentence.lower().__contains__, self.parts))


def cue(words: str, *patterns: str, wide: str, parts: tuple[str, ...] = ()) -> Cue:
    """Return a cue of these words whose pattern is any of the given ones."""
    found = lazy_pattern("|".join(patterns), re.I)
    return Cue(word_set(words), found, lazy_pattern(wide, re.I), parts)


_OPENERS = (
    r"^(?:(?:please|also|and|but|so|then|remember|note|important|rule|again|ok(?:ay)?|"
    r"one more thing|from now on)[,:!.]? )*"
)
_RULE = cue(
    "not don't never always only make ensure avoid circumstances must mustn't shall should may can "
    "is are exceed later more latest allergic niemals keinen dürfen darf jamais faut interdit doit "
    "nunca debes debe deben prohibido",
    # An order: at the start of a sentence, or of a clause that is no report in the first person.
    _OPENERS + r"(?:do not|don['’]t|never|always|only|make sure|ensure|avoid|"
    r"under no circumstances) (?!know\b|think\b|mind\b|worry\b|hesitate\b|"
    r"forget (?:the|that|about)\b|get me wrong|a\b|the\b)",
    r"[,;:—–] ?(?:and |but |so |please |then )?(?:do not|don['’]t|never|always) "
    r"(?!know\b|think\b|mind\b|worry\b|really\b|had\b|been\b|was\b|a\b|"
    r"[a-z]{3,}(?:ed|ing)\b)",
    r"\b(?!i\b)\w+ (?:must(?:n['’]t)?|shall|may not|should (?:never|always|only|not)|"
    r"(?:can|is|are|be) only (?:be )?(?:used|sent|done|run|shipped|called|paid|booked|made|"
    r"deployed)|(?:is|are) (?:strictly )?(?:not allowed|forbidden|off[- ]limits|prohibited))\b"
    r"(?! (?:be (?:a|the)|have)\b)",
    r"\bi must (?:never|not) (?!forget\b|say\b|admit\b)",
    r"\b(?:no more than|no later than|not exceed|at the latest) ",
    r"\bi(?:['’]m| am) allergic to\b",
    r"^(?!.*\b(?:i|i['’]m|i['’]ve|my|was|were|had|did)\b)(?:\S+ ){1,8}"
    r"only (?:on|by|if|when|after|with|in|via) ",
    r"\bi (?:never|always|only) want\b",
    # "I don't want it to rain" wishes; what somebody does to a thing can be forbidden.
    r"\bi (?:do not|don['’]t) want (?:you (?:to|\w+ing)\b|to see\b|any\b(?! (?:trouble|regret|"
    r"drama|hassle|more\b|part\b|misunderstanding|hard feelings|of (?:this|that)\b))|"
    r"(?:it|them|us|this|that|these|those) (?:to be |being )?"
    r"(?:\w{3,}ed|sent|sold|told|shown|made|built|put|run|cut|kept|given|written|drawn|paid)\b)",
    r"^(?:bitte )?(?:niemals|auf keinen Fall)\b",
    r"\b(?:dürfen? (?:nicht|nur)|darf (?:nicht|nur|kein\w*)|niemals)\b",
    r"\bne [^.]{1,40} jamais\b|^(?:il faut|n['’]\w+ jamais)"
    r"|\b(?:interdit|ne doit pas|doit toujours)\b",
    r"^nunca\b|\b(?:no debes?|siempre debes?|prohibido|nunca debe\w*)\b",
    wide=r"必须|(?<!要)不要(?!紧)|不得(?!不)|只能|禁止|务必|一定要|不许|一律|切勿|千万别"
    r"|絶対に|しないで|必ず|반드시|절대|하지 ?마|금지"
    r"|\b(?:никогда не|нельзя|обязательно|запрещено)\b|لا تستخدم|يجب|ممنوع",
    parts=(
        "do not", "don't", "never", "always", "only", "make sure", "ensure", "avoid",
        "circumstances", "must", "shall", "may not", "should not", "not allowed", "forbidden",
        "off-limits", "off limits", "prohibited", "no more than", "no later than", "not exceed",
        "at the latest", "allergic", "niemals", "auf keinen", "darf", "jamais", "il faut",
        "interdit", "doit", "nunca", "debe", "prohibido",
    ),
)  # fmt: skip
_NO_RULE = lazy_pattern(
    r"[?？]\s*$|\bmust[- ]have\b|\bmust (?:have|admit|say)\b"
    # What somebody gathers or intends is no order, either.
    r"|\b(?:you|he|she|they|it|that|this) must be (?:so|very|really|quite|such)\b|^我也?一定要"
    r"|\bi(?:['’]ve| have| was|['’]m not)? (?:never|always|only) (?!want)"
    r"|\b(?:was|were|had|did|used to)\b.*\b(?:always|never|only)\b|\bseems?\b"
    # What is felt: "Never better!", "Always happy to help!"
    r"|^(?:never|always|only) (?:again|better|in my life|happy|glad|nice|fun|welcome|ready|here)\b"
    r"[^.!?]{0,30}[.!]*$"
    # What somebody or something says is no order.
    r"|\b(?:says|appears?)\b.*\bonly\b",
    re.I,
)
_OURS = (
    r"(?:we|us|our|ours|i|me|my|wir|uns\w{0,4}|ich|mir|nous|notre|je|nosotros|noi|nós|wij|ons|"
    r"мы|нас|нам)"
)
_REPORTED = lazy_pattern(
    # What people say, write and claim is a rule of theirs, unless it is about us.
    rf"^(?!{_OURS}\b(?! (?:\w+ )?(?:boss|mother|father|mum|mom|dad|teacher|coach|doctor|neighbou?r|"
    r"friend|brother|sister|uncle|aunt|grandm\w+|grandp\w+|landlord|colleague)\b))"
    r"(?!(?:\S+ ){0,3}(?:i|we|ich|wir|je|nous|yo|io|eu|ik|я|мы)\b)"
    r"(?:[^\s,:;]+ ){1,6}?(?:say|says|said|claims?|claimed|wrote|writes|thinks?|thought|believes?|"
    r"believed|argues?|argued|insists?|insisted|used to say|tells? (?:people|everybody|everyone)|"
    r"preach\w*|sagt|sagte|meint|meinte|schreibt|schrieb|findet|disait|dit|écrit|prétend|"
    r"dice|decía|dijo|escribió|cree|diceva|scrive|scrisse|sostiene|dizia|disse|escreveu|acha|"
    r"zei|zegt|schreef|vindt|говорит|говорил|говорила|сказал|сказала|пишет|считает)\b"
    rf"(?!.*\b{_OURS}\b)"
    rf"|^(?:according to|laut|selon|según|secondo|segundo|volgens|согласно) "
    rf"(?!{_OURS}\b)[^,]{{1,40}}"
    rf"(?!.*\b{_OURS}\b)"
    r"|^i (?:read|heard|saw) (?:somewhere |once )?that\b"
    # A sign, a label, a headline.
    r"|^(?:the|a|an|this) (?:sign|label|poster|headline|slogan|sticker|notice|caption|motto)\b"
    r"[^:]{0,40}:"
    r"|^我?[^，。我]{0,8}(?:说|说过|写道|认为|觉得)(?!.*我们)|と(?:言|書)|라고 (?:했|말|썼)",
    re.I,
)
# Of what may be said: the order's own verb reports nothing.
_OF_SAYING = lazy_pattern(
    r"(?:(?:please|and|but|so|also|then),? ){0,2}(?:do not|don['’]t|never|always) "
    r"(?:say|tell|write|claim|think|believe|argue|insist)\b",
    re.I,
)
_REQUEST = cue(
    "please can could would will help like want need implement fix add write create explain "
    "find give send show tell list book cancel change check update remove run summarize summarise "
    "translate remind recommend generate make describe compare refactor test look review bitte "
    "kannst können möchte favor puedes podrías quiero peux pouvez plaît voudrais aimerais",
    # "Yes, please …" agrees to what was offered.
    r"^(?!yes\b|sure\b|ok(?:ay)?[,.]? please)"
    r"(?:(?:ok(?:ay)?|now|then|and|also|hi|hello|hey|great|thanks|so)[,.!]? )*"
    r"(?:please (?!proceed|go ahead)|can you\b|could you\b|would you\b|will you\b|help me\b|"
    r"i(?:['’]d| would) like "
    r"(?:you to|to (?!keep|stay|stick|confirm|avoid|use|pay|proceed|thank))\b|"
    r"i want (?:you )?to (?!keep|stay|stick|avoid|thank)|i need (?:you )?to\b|"
    r"(?:implement|fix|add|write|create|explain|find|give|send|show|tell|list|book|cancel|change|"
    r"check|update|remove|run|summari[sz]e|translate|remind|recommend|generate|make|describe|"
    r"compare|refactor|test|look (?:at|into|up|for)|review) (?!it is\b))",
    r"^(?!yes\b|sure\b).*\bplease (?:\w+ )?(?:implement|fix|add|write|create|explain|find|"
    r"give|send|show|tell|book|cancel|change|check|update|remove|run|help|let me know)\b",
    r"^(?:bitte\b|kannst du\b|können sie\b|ich möchte\b|por favor\b|puedes\b|podrías\b|quiero\b|"
    r"peux-tu\b|pouvez-vous\b|s['’]il (?:te|vous) plaît|je voudrais\b|j['’]aimerais\b)",
    wide=r"^请(?!问$)|帮我|帮忙|我想要?(?:找|去|知道|预订|了解|问)|麻烦(?:你|您)|给我|推荐"
    r"|ください|お願い|教えて|해 ?주세요|부탁|알려 ?줘"
    r"|^(?:пожалуйста|можешь|можете|помоги|напиши|сделай|объясни|расскажи)"
    r"|من فضلك|هل يمكنك|أريد",
)
_DECISION = cue(
    "decided agreed settled chose opted go goes gone going went switch switched switching stick "
    "sticking picked approved signed decision let's i'll entschieden beschlossen geeinigt decidido "
    "decidimos décidé",
    r"\b(?:we|i|they)(?:['’]ve| have|['’]ll| will|['’]re| are|['’]m| am)? (?:(?:now|just|finally|"
    r"all|have|going to|already) ){0,2}(?:decided (?!by\b)(?:to|on|that|against|for)|"
    r"agreed (?:to|on|that)|settled on|chose|opted|gone? with|go(?:ing)? with|switch(?:ed|ing)? to|"
    r"stick(?:ing)? with|picked|approved|signed off)\b",
    r"\b(?:it is|it's|it was|was|is|are|were) (?:decided|agreed|approved|settled)\b",
    r"^(?:decision|decided|agreed|approved)\b ?[:,.—-]?|\blet['’]s (?:(?:go|stick|proceed|"
    r"move forward) with|go ahead (?:and|with))\b",
    r"\bi['’]ll (?:take|go with|keep) the\b|\bgo (?:ahead )?with (?:option|the|plan)\b",
    r"\b(?:wir haben (?:uns )?[^.]{0,60}(?:entschieden|beschlossen|geeinigt)|hemos decidido|"
    r"decidimos|nous avons décidé|on a décidé)\b",
    wide=r"(?<![没未么个的])决定(?:了|用|选|采用|把|不|由|将|在|先)|就(?:选|定)|选定|改为|改成|敲定|定为|定了|同意|采用|批准"
    r"|に決め|することにし|하기로 (?:했|결정)|결정했|(?:мы )?решили|договорились|قررنا|اتفقنا",
)
_DOUBT = lazy_pattern(
    r"\bif\b|\bmaybe\b|\bperhaps\b|\bwhether\b|\bwould\b|\bshould\b|\bcould\b|\bnot yet\b|"
    r"\bhaven['’]t\b|\bnot (?:yet )?(?:decided|agreed)|[?？]|如果|也许|可能|要是|吗",
    re.I,
)
_OPEN = cue(
    "tbd undecided unresolved open not remains waiting awaiting to",
    r"\b(?:tbd|undecided|unresolved|still open|open questions?|not (?:yet )?decided|"
    r"remains to be|awaiting|"
    r"to be (?:confirmed|decided|determined))\b",
    # Somebody waits now: "what I have been waiting for" has come.
    r"^(?!if\b|when\b)(?:(?:.*(?:[,;]|\b(?:still|now|am|are|is)|['’](?:re|m|s)) )?"
    r"(?:just |only )?waiting (?:for|on)\b)",
    wide=r"待定|待确认|未决|未解决|还没(?:有)?(?:定|回|决定)|尚未",
    parts=(
        "tbd", "unresolved", "still open", "open question", "decided", "remains to",
        "waiting", "to be confirmed", "to be determined",
    ),
)  # fmt: skip
_POLITE = lazy_pattern(
    r"\b(?:anything else|any(?:thing)? (?:other|more|further)|can i (?:help|assist)|"
    r"(?:need|like) (?:any |more |further )?(?:help|assistance)|how (?:are|about) you|"
    r"does that (?:help|make sense)|right)\b"
    r"|还有(?:其他|什么)(?:问题|需要)|可以帮(?:您|你)|对吗|好吗",
    re.I,
)
LONGEST_QUESTION_END = 6
"""Characters behind which no end of a question can begin."""
_QUESTION_END = lazy_pattern(r"[?？؟][\"'”’)\]]{0,3}$|[吗呢][。]?$")


@lru_cache(maxsize=4096)
def classify(sentence: str, *, role: str, last: bool = False) -> UnitKind:
    """The kind of a sentence where its words are sure, else a fact.

    Only what a user or the operator says is a rule, and only what a user says a request; a question
    is open in the `last` message alone.
    """
    if role == "tool" or is_code_line(sentence):
        return UnitKind.FACT
    words = words_in(sentence)
    if role in ("user", "system", "developer") and _is_rule(sentence, words):
        return UnitKind.RULE
    asks = is_question(sentence)
    requests = role == "user" and _REQUEST.is_in(sentence, words)
    if asks and last and not requests and not _POLITE.search(sentence):
        return UnitKind.QUESTION
    if not asks and _OPEN.is_in(sentence, words):
        return UnitKind.QUESTION
    if _DECISION.is_in(sentence, words) and not _DOUBT.search(sentence):
        return UnitKind.DECISION
    if requests and count_words(sentence) >= FEWEST_WORDS:
        return UnitKind.REQUEST
    return UnitKind.FACT


def is_rule(sentence: str) -> bool:
    """Whether a sentence says what must hold from now on, rather than reports something."""
    return _is_rule(sentence, words_in(sentence))


def _is_rule(sentence: str, words: frozenset[str]) -> bool:
    if not _RULE.is_in(sentence, words) or _NO_RULE.search(sentence):
        return False
    return bool(_OF_SAYING.match(sentence)) or not _REPORTED.search(sentence)


def kind_worth(kind: UnitKind) -> float:
    """The factor that a kind earns a clause."""
    return _KIND_WORTH.get(kind, 1.0)


def asks(sentence: str) -> bool:
    """Whether a sentence asks for something to be told, beyond whether anything else is wanted."""
    return is_question(sentence) and not _POLITE.search(sentence)


def is_question(sentence: str) -> bool:
    """Whether a sentence asks something."""
    return bool(_QUESTION_END.search(sentence, max(0, len(sentence) - LONGEST_QUESTION_END)))

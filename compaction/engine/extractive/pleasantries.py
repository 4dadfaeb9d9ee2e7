"""What a model says to be kind: it answers nothing, and nobody goes on from it.

Praise, wishes, offers of help and what the model says of itself. Each part of the clause has to be
one, or a name: "No problem, I cancelled the flight" tells what was done, and "that is a good price"
of a price. Beside praise only words of small talk may stand; what is wished may be anything short.
"""

from __future__ import annotations

from functools import lru_cache

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.forms import COURTESY, count_words, is_farewell
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set, words_in
from compaction.engine.extractive.terms import words_of
from compaction.engine.fidelity.entities import NAME, find_entities

PLEASANTRY_WORTH = 0.12
LONGEST = 30
"""Words; what is longer says something."""
MOST_CONTENT = 9
"""Words that are no stop words."""
MOST_WISHED = 5
"""Words of what is wished or hoped."""
MOST_WIDE = 4
"""Characters beside praise, in scripts that part no words."""
MOST_WISHED_WIDE = 12

_WISH = lazy_pattern(
    r"\b(?:enjoy (?:your|the|it)|(?:wish(?:ing)?|hope) you|good luck|"
    r"i (?:really )?(?:hope|wish|believe) (?:you|that you|your|everything|it)|"
    r"bonne chance|bon courage|mucha suerte|buona fortuna|boa sorte|viel (?:spaß|erfolg|glück)|"
    r"alles gute|veel (?:succes|plezier)|удачи)\b"
    r"|祝(?:你|您)|希望(?:你|您|这)|よかった(?:です)?ね|بالتوفيق",
    2,
)
"""What is wished for is not so yet, whatever it is."""
_KIND = lazy_pattern(
    r"\b(?:i['’]?a?m (?:just |only )?an? (?:ai|intelligent|virtual|language model|chatbot)|"
    r"as an? (?:ai|intelligent|virtual|language model|assistant)|i (?:fully |really )?"
    r"(?:understand|know|can imagine) (?:how you feel|your feelings)|"
    r"(?:that|it|this)(?:['’]s| is| sounds| must be| was) "
    r"(?:really |very |so |a |an |quite |truly |such a )*(?:great|wonderful|good|nice|lovely|"
    r"fantastic|awesome|amazing|interesting|exciting|excellent|admirable|impressive|understandable|"
    r"touching|inspiring|pleasure)|i['’]?a?m (?:so |very |always |really )*(?:glad|happy|here|"
    r"delighted|pleased|proud)|you can do it|"
    r"have (?:fun|an? (?:great|good|nice|lovely|wonderful|safe|pleasant|amazing))|"
    r"believe in yourself|keep (?:it up|up the|going)|cheer up|take care|well done|"
    r"congratulations|what a (?:great|wonderful|lovely)|"
    r"you['’]?a?re (?:very |most |so |always )?welcome|my pleasure|"
    r"no problem|anytime|happy to|if you (?:need|have|want) ?(?:any|some|further|more)?|"
    r"(?:is|if) there(?: is|['’]s)? anything else|nice to meet you|"
    r"i (?:will|['’]ll) (?:always )?be (?:here|there)|feel free|let me know if|"
    r"(?:can|may|could|how can) i (?:help|assist))\b"
    r"|(?<!\w)don['’]t worry\b"
    r"|\b(?:das (?:klingt|freut)(?: mich)?|freut mich|gern geschehen|"
    r"keine sorge|ich bin (?:nur )?ein(?:e)? (?:ki|assistent\w*)|c['’]est (?:génial|super|"
    r"formidable|merveilleux)|avec plaisir|de rien|je suis (?:ravie?|là|désolée?)|n['’]hésite\w*|"
    r"de nada|me alegr[ao]|qué bien|no dudes|no te preocupes|prego|"
    r"che bello|mi fa piacere|non esitare|que bom|fico feliz|graag gedaan|"
    r"wat leuk|geen zorgen|не за что|рада? (?:помочь|слышать)|"
    r"не волнуй\w*|это (?:здорово|замечательно|прекрасно))\b"
    r"|不用谢|不客气|不谢|"
    r"很高兴(?:能够?|可以|再次?)?(?:[认见](?:识|到)?(?:你|您)|帮(?:助|到)*(?:你|您)|[和跟与为](?:你|您))?|"
    r"(?:^|[，,。！!、 ])加油|"
    r"我(?:只)?是.{0,8}(?:AI|人工智能|助手|伴侣)|作为.{0,8}(?:AI|人工智能|助手|伴侣)|"
    r"我(?:很)?(?:理解|明白)你|听起来|太棒|真(?:不错|好)|别担心|不要担心|我的朋友|随时(?:告诉|联系|问)|"
    r"(?:还?有什么(?:需要)?)?我?(?:可以|能)?帮(?:忙|助|到)?(?:你|您)?的吗|非常(?:好|棒|不错)的|"
    r"(?:我会)?一直(?:在这里|都会)?(?:支持|陪)(?:伴|着)?(?:你|您)|"
    r"どういたしまして|頑張って|素晴らしい|嬉しい|"
    r"천만에요|화이팅|힘내|기쁩|기뻐|좋네요|عفوا|على الرحب|يسعدني|لا تقلق",
    2,
)
_SMALL_TALK = COURTESY | word_set(
    "additional advice adventure agree anytime ask asking assist assisting chat chatting choice "
    "clarification companion company concerns delighted details duty enjoy enjoyable experience "
    "feel feeling feels feelings feel friend friends future hesitate idea ideas inspiring "
    "interesting interests journey learn life listen luck meaningful meeting moment news physical "
    "form pleasant pleased pleasure preferences presence proceed questions reach ready regards "
    "safe share sharing sounds successful suggestions support talk talking thought thoughts topic "
    "topics travels trip true useful way whenever wish wishes words worry yourself"
)
"""What may stand beside praise and offers."""
_WORDS_OF_ALL = word_set(
    "ai assistant intelligent virtual model chatbot understand know imagine great wonderful good "
    "nice lovely fantastic awesome amazing interesting exciting excellent admirable impressive "
    "understandable touching inspiring pleasure glad happy here delighted pleased proud worry do "
    "luck enjoy believe keep cheer care well congratulations wishing wish hope welcome "
    "problem anytime need feel let help assist thank thanks looking appreciate sounds course "
    "questions sorry morning hi hello hey sure certainly absolutely bye goodbye see klingt freut "
    "gern viel alles keine ki assistent danke vielen auf bis avec bonne bon rien suis merci au "
    "nada alegra alegro suerte dudes preocupes gracias hasta prego bello piacere fortuna esitare "
    "grazie arrivederci bom fico boa obrigado obrigada tchau graag leuk succes plezier zorgen "
    "bedankt dank tot"
)
"""One of them is in each that is written in ASCII."""
_PARTS = lazy_pattern(r"[,;:!?.，。！？、；]+|\s[-–—]\s")
_SAYS = lazy_pattern(r"[^\W_]")
_ANSWER = lazy_pattern(
    r"\s*(?:yes|yep|yeah|no|nope|not|never|ja|nein|oui|non|sí|si|sì|sim|não|nee|да|нет|"
    r"是的|对|不是|不行|可以|はい|いいえ|네|아니요|نعم|لا)\s*",
    2,
)
"""A part that answers a question."""
_CALLED = lazy_pattern(
    r"(?:\s|(?:[Hh]i|[Hh]ello|[Hh]ey) )[A-ZÀ-ÞА-Я][^\W\d_]*(?: [A-ZÀ-ÞА-Я][^\W\d_]*)?\s*"
)
_WIDE = lazy_pattern(f"[{HAN}{KANA}{HANGUL}]")


@lru_cache(maxsize=4096)
def is_pleasantry(clause: str) -> bool:
    """Whether a clause of a model's is kind and says nothing."""
    # A look at the words first: the patterns are slow.
    if clause.isascii() and _WORDS_OF_ALL.isdisjoint(words_in(clause)):
        return False
    if len(words_of(clause)) > MOST_CONTENT or count_words(clause) > LONGEST:
        return False
    parts = [part for part in _PARTS.split(clause) if _SAYS.search(part)]
    if not any(map(_is_kind, parts)):
        return False
    if any(one.kind != NAME for one in find_entities(clause)):
        return False
    return all(_is_kind(part) or _calls(part) for part in parts)


def _calls(part: str) -> bool:
    """Whether a part is a name: behind a comma, or with a greeting before it."""
    return bool(_CALLED.fullmatch(part)) and not _ANSWER.fullmatch(part)


def _is_kind(part: str) -> bool:
    """Whether a part of a clause wishes something, or praises, offers and takes leave alone."""
    if _ANSWER.fullmatch(part):
        return False
    if (wish := _WISH.search(part)) and _is_short(part[: wish.start()], 2):
        return _is_short(_WISH.sub(" ", part), MOST_WISHED_WIDE, MOST_WISHED)
    if not _KIND.search(part) and not is_farewell(part):
        return False
    return _is_short(_KIND.sub(" ", part), MOST_WIDE)


def _is_short(rest: str, most_wide: int, most: int = 0) -> bool:
    """Whether what stands beside kind words says nothing of its own."""
    told = [word for word in words_of(rest) if word not in _SMALL_TALK]
    return len(told) <= most and len(_WIDE.findall(rest)) <= most_wide


def worth_of_kindness(clause: str) -> float:
    """The factor for a clause of a model's: 1 where it says something."""
    return PLEASANTRY_WORTH if is_pleasantry(clause) else 1.0

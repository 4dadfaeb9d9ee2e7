"""What a model says to be kind: it answers nothing, and nobody goes on from it.

Praise, wishes, offers of help and what the model says of itself. A clause that names anything but
people, or says something else beside it, is none.
"""

from __future__ import annotations

from functools import lru_cache

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.forms import count_words, is_farewell
from compaction.engine.extractive.sentences import word_set, words_in
from compaction.engine.extractive.terms import words_of
from compaction.engine.fidelity.entities import NAME, find_entities

PLEASANTRY_WORTH = 0.12
LONGEST = 30
"""Words; what is longer says something."""
MOST_BESIDE = 2
"""Words in the parts that are no pleasantry themselves."""
MOST_CONTENT = 9
"""Words that are no stop words."""
MOST_IN_ALL = 5
"""Words beside those that are kind."""
MOST_WIDE_BESIDE = 12
"""Characters, in scripts that part no words."""

_KIND = lazy_pattern(
    r"\b(?:i['’]?a?m (?:just |only )?an? (?:ai|assistant|intelligent|virtual|language model|"
    r"chatbot)|"
    r"as an? (?:ai|intelligent|virtual|language model|assistant)|i (?:fully |really "
    r")?(?:understand|"
    r"know|can imagine) (?:how|your|you)|(?:that|it|this)(?:['’]s| is| sounds| must be| was) "
    r"(?:really |very |so |a |an |quite |truly |such a )*(?:great|wonderful|good|nice|lovely|"
    r"fantastic|awesome|amazing|interesting|exciting|excellent|admirable|impressive|understandable|"
    r"touching|inspiring|pleasure)|i['’]?a?m (?:so |very |always |really )*(?:glad|happy|here|"
    r"delighted|pleased|proud)|don['’]t worry|you can do it|good luck|enjoy (?:your|the|it)|"
    r"have (?:fun|a )|believe in yourself|keep (?:it up|up the|going)|cheer up|take care|well done|"
    r"congratulations|wishing you|(?:wish|hope) you|"
    r"i (?:really )?(?:hope|wish|believe) (?:you|that you|your|everything|it)|"
    r"what a (?:great|wonderful|lovely)|you['’]?a?re (?:very |most |so |always )?welcome|my "
    r"pleasure|"
    r"no problem|anytime|happy to|if you (?:need|have) any|feel free|let me know if|"
    r"(?:can|may|could|how can) i (?:help|assist))\b"
    r"|\b(?:das (?:klingt|freut)|freut mich|gern geschehen|viel (?:spaß|erfolg|glück)|alles gute|"
    r"keine sorge|ich bin (?:nur )?ein(?:e)? (?:ki|assistent\w*)|c['’]est (?:génial|super|"
    r"formidable|"
    r"merveilleux)|avec plaisir|bonne chance|de rien|je suis (?:ravie?|là|désolée?)|n['’]hésite\w*|"
    r"bon courage|de nada|me alegr[ao]|qué bien|mucha suerte|no dudes|no te preocupes|prego|"
    r"che bello|mi fa piacere|buona fortuna|non esitare|que bom|fico feliz|boa sorte|graag gedaan|"
    r"wat leuk|veel (?:succes|plezier)|geen zorgen|не за что|рада? (?:помочь|слышать)|удачи|"
    r"не волнуй\w*|это (?:здорово|замечательно|прекрасно))\b"
    r"|不用谢|不客气|不谢|很高兴|加油|祝(?:你|您)|希望(?:你|您|这)|我(?:只)?是.{0,8}(?:AI|人工智能|助手|伴侣)|"
    r"作为.{0,8}(?:AI|人工智能|助手|伴侣)|我(?:很)?(?:理解|明白)你|听起来|太棒|真(?:不错|好)|别担心|不要担心|"
    r"随时(?:告诉|联系|问)|帮(?:忙|助|到)?(?:你|您)?的吗|非常(?:好|棒|不错)的|どういたしまして|頑張って|"
    r"素晴らしい|嬉しい|"
    r"よかった(?:です)?ね|천만에요|화이팅|힘내|기쁩|기뻐|좋네요|عفوا|على الرحب|بالتوفيق|"
    r"يسعدني|لا تقلق",
    2,
)
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


@lru_cache(maxsize=4096)
def is_pleasantry(clause: str) -> bool:
    """Whether a clause of a model's is kind and says nothing."""
    # A look at the words first: the patterns are slow.
    if clause.isascii() and _WORDS_OF_ALL.isdisjoint(words_in(clause)):
        return False
    if len(words_of(clause)) > MOST_CONTENT or count_words(clause) > LONGEST:
        return False
    if not _KIND.search(clause):
        return is_farewell(clause)
    if any(one.kind != NAME for one in find_entities(clause)):
        return False
    others = [
        part
        for part in _PARTS.split(clause)
        if _SAYS.search(part) and not _KIND.search(part) and not is_farewell(part)
    ]
    wide = sum(len(part) for part in others if not part.isascii())
    words = [word for part in others for word in words_of(part)]
    if len(words_of(_KIND.sub(" ", clause))) > MOST_IN_ALL:
        return False  # "I hope you packed the blue adapter" tells of more than hope
    return len(words) <= MOST_BESIDE and wide <= MOST_WIDE_BESIDE


def worth_of_kindness(clause: str) -> float:
    """The factor for a clause of a model's: 1 where it says something."""
    return PLEASANTRY_WORTH if is_pleasantry(clause) else 1.0

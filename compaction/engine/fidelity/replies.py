"""Texts that go on with a conversation instead of summarising it, told without a model.

Such a text begins as an answer, an apology, a plan or a request for more; or it knows nothing of
what was said before the last turn, although many things were named there.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import line_spans
from compaction.engine.fidelity.entities import NAME, NUMBER, find_entities, small_words
from compaction.engine.fidelity.spellings import normal
from compaction.engine.types import Item, SummaryRequest

LONGEST_OPENING = 300
SHORT_REPLY = 400
"""A text that begins as an answer and is longer may be a summary with a polite beginning."""
LAST_TURN = 2
"""Of the newest messages, so many are what an answer would be about."""
# Measured on public conversations: the real answers of models at 192 places where so many things
# had been named before the last turn, beside sentences chosen from the same messages. Refused are
# 84 % of the answers, and of chosen sentences none of 300 tokens, 1.6 % of 120 and 16 % of 60,
# where they are what users said. With 4 it is the same, and 111 more places are judged.
FEWEST_NAMED = 8
FEWEST_WORDS = 5
"""What has fewer is a title, and says too little to be told from one."""
SHORTEST_NUMBER = 3
SHORTEST_PART = 3
# Of a message, so much is looked at, and of all of them: names stand in the first lines.
READ_OF_MESSAGE, READ_IN_ALL = 8_000, 400_000

ANSWERS = (
    "The text answers, apologises, announces or asks something instead of summarising: the model "
    "took the conversation for a request to itself."
)
NAMES_NOTHING = (
    "The text names none of the identifiers, numbers and names of what it replaces, although there "
    "are many: it says nothing of the conversation."
)

# How a text begins that speaks to the user instead of reporting.
_OPENINGS = lazy_pattern(
    r"\W{0,4}(?:"
    # An answer.
    r"(?:sure|sure thing|certainly|of course|absolutely|great|okay|ok|got it|alright|perfect|"
    r"understood|no problem|definitely)(?:!|[,.](?: (?:here|i|you|we|let|that|this|it|just|please|"
    r"so|no)\b|$))|(?:certainly|of course|absolutely|definitely), |"
    r"you(?:['’]re| are) (?:absolutely |completely )?(?:welcome|right)|"
    r"happy to help|glad to help|(?:yes|no|yep|nope)[,!] |"
    r"(?:hello|hi|hey)(?: there)?[,!]|how can i (?:help|assist)|thank you for (?:sharing|providing|"
    r"the)|thanks (?:for|so much)|(?:good|great|excellent) (?:question|idea|point)|"
    r"to (?:answer your|proceed)|"
    r"you (?:should|could|can|might|may want|need to|['’]ll (?:want|need))\b|"
    r"i(?:['’]d| would) (?:recommend|suggest|go with|love to|be happy)|"
    r"i (?:recommend|suggest|hope)\b|"
    # An apology or a refusal.
    r"(?:i(?:['’]m| am) (?:very |really |so )?sorry|sorry|i apologi[sz]e|my apologies|"
    r"unfortunately|apologies)[,.]? "
    r"(?:but |for (?:the|any|my) (?:confusion|inconvenience|misunderstanding|mistake|delay)|"
    r"(?:that )?i |about|to hear)|"
    r"i(?:['’]m| am) (?:unable|not able) to|"
    r"i (?:can['’]?t|cannot|am unable to|won['’]t|am not able to|['’]m unable to) (?:help|assist|"
    r"provide|"
    r"summari[sz]e|fulfil|complete|do|comply|access|see|continue|create|generate)|"
    r"as an? (?:ai|language model)|i (?:do not|don['’]t) (?:have|see) (?:any|access|a|the|enough) |"
    # A plan.
    r"(?:first,? |now,? |next,? )?(?:i(?:['’]ll| will| shall)|i(?:['’]m| am) going to|let['’]s) |"
    r"(?:first,? |now,? |next,? )?(?:let me|we(?:['’]ll| will)) (?:now |first |start|begin|"
    r"summari[sz]e|create|write|proceed|help|analy[sz]e|take|go|check|look|read|continue|provide|"
    r"try|fix|implement|think|see|book|find|search)|"
    r"(?:we|i) need to (?:summari[sz]e|produce|write|create)|the user wants me to|"
    r"okay, (?:so )?(?:the user|i need)|"
    # A request for more.
    r"let me know (?:if|when|whether|what|which|how|and)\b|feel free to|"
    r"please (?:provide|share|paste|send|tell|let me|confirm|clarify|specify|give|upload|attach)|"
    r"(?:can|could|would|will) you (?:please |kindly )?(?:provide|share|paste|send|tell|confirm|"
    r"clarify|specify|give|like|let me|upload|describe|explain)|"
    r"(?:shall|should|may|can) i |do you (?:want|need|have)\b|"
    r"(?:what|which|how|where|when) (?:\w+ ){0,2}(?:would|do|should|can) (?:you|i)\b|"
    r"i(?:['’]d| would)? need (?:more|some|the|a few|your)|is there anything|anything else|"
    # The same elsewhere.
    r"(?:es tut mir leid|tut mir leid|entschuldigung)[,.]|leider kann ich|ich kann (?:diese|ihnen|"
    r"dir|das)\b.{0,60}nicht|"
    r"(?:gerne|natürlich|klar|selbstverständlich)[,!.]|ich (?:werde|würde) |"
    r"bitte (?:teil|geb|send|schick|gib|sag|nenn|beschreib)|(?:soll|kann|darf) ich |"
    r"(?:können|könnten|möchten|wollen) sie\b|(?:möchtest|willst|kannst|könntest|solltest) du\b|"
    r"(?:sie|du) (?:sollten|solltest|können|könnten|kannst|könntest) |lassen sie mich|lass mich|"
    r"(?:je suis )?désolée?[,.]|je ne peux pas|bien sûr[,!.]|voici (?:le|un|votre) résumé|"
    r"je vais |(?:pourriez|pouvez|voulez|souhaitez|aimeriez)[- ]vous |veuillez |dites-moi|"
    r"vous (?:devriez|pouvez|pourriez) |n['’]hésitez pas|"
    r"lo siento[,.]|no puedo (?:ayudar|proporcionar|resumir|cumplir)|(?:claro|por supuesto)[,!.]|"
    r"voy a |(?:podría|podrías|puede|puedes|quieres|quiere|desea|deseas) |te gustaría|"
    r"por favor,? (?:proporcion|compart|env|ind|dime|díg)|(?:deberías|debería|puedes|te recomiendo)"
    r" |avísame|hágame saber|"
    r"desculpe[,.]|não posso (?:ajudar|fornecer|resumir)|por favor,? (?:forne|compartilh|envi|"
    r"inform)|claro[,!.]|vou |(?:você gostaria|gostaria de|você deveria|você pode) |"
    r"mi dispiace[,.]|non posso (?:aiutar|fornire|riassumere)|certo[,!.]|(?:vuoi|vorresti|potresti|"
    r"dovresti|puoi) |fammi sapere|per favore,? |"
    r"het spijt me|ik kan (?:u|je|dit|deze)\b.{0,60}niet|natuurlijk[,!.]|ik (?:zal|ga) |"
    r"(?:kunt|wilt|zou) u |(?:kun|wil|zou) je |laat (?:me|het me) |"
    r"извините|к сожалению, я|простите|конечно[,!.]|я не могу (?:помочь|предоставить|выполнить)|"
    r"сейчас я|пожалуйста, |(?:не )?могли бы вы|(?:хотите|хочешь)[ ,]|"
    r"(?:вам|тебе) (?:стоит|следует|лучше)|дайте знать|сообщите мне|"
    r"抱歉|对不起|很遗憾|我无法|我不能(?:帮|提供|总结|完成)|当然[，！,!]|好的[，！,!。]|"
    r"以下是(?:您|你|对话|为您)|我(?:将|会|来|建议)(?:为您|总结|先|开始|您|你)|让我(?:来|先)|"
    r"请(?:您)?(?:提供|告诉|发送|分享|把|问)|(?:您|你)(?:可以|应该|需要|想要?|是否|能否|希望)|"
    r"如果(?:您|你)|需要我|不客气|不用(?:客气|谢)|"
    r"申し訳|すみません|もちろん|承知しました|かしこまりました|わかりました|"
    r"(?:お知らせ|教えて|提供して)ください|"
    r"죄송|물론|알겠습니다|네[,!]|(?:알려|제공해|공유해) ?주|"
    r"عذرا|آسف|بالطبع|لا أستطيع|لا يمكنني|يرجى|من فضلك|هل (?:تريد|ترغب|تود)|سأقوم|يمكنك"
    r")",
    re.IGNORECASE,
)
# A line that only announces the summary: what follows it is the text.
_PREFACE = lazy_pattern(r"[^\n]{0,200}[:：]\s*\n+(?=\s*\S)")
# Who speaks to somebody, or of themselves, who reports does neither.
_ADDRESSES = lazy_pattern(
    r"[?？؟您你我]|\b(?:you|your|yours|i|i['’](?:m|ll|ve|d)|my|let['’]s|let me|"
    r"du|dir|dich|deine?[rnms]?|ihnen|ich|mir|vous|votre|vos|je|usted|ustedes|te|tú|você|"
    r"jij|jou|ik|вам|вас|ваш\w{0,4}|вы|ты|тебе|я)\b|ください|でしょうか|ましょうか|습니까|세요|까요"
    r"|لك\b|أنت",
    re.IGNORECASE,
)
_CITATION = lazy_pattern(r"\[(\d{1,6})\]")
_WORD = lazy_pattern(r"\w+")


def speaks_to_user(text: str) -> bool:
    """Whether a text begins as an answer, an apology or a plan does; a report begins otherwise."""
    first = _first_line(text)
    return not _is_report(first) and bool(_OPENINGS.match(first[:LONGEST_OPENING]))


def _is_report(text: str) -> bool:
    """Whether a text begins with a heading or a list: that is reported, whatever its words."""
    return _first_line(text).startswith(("#", "- ", "* ", "•", "**"))


def _first_line(text: str) -> str:
    return next((text[start:end] for start, end in line_spans(text)), "")


def reply_instead(text: str, request: SummaryRequest) -> str:
    """Return why a text is a reply and no summary of the request, as a sentence; else nothing."""
    body = _without_preface(text)
    opens = speaks_to_user(body)
    if opens and len(body) < SHORT_REPLY:
        return ANSWERS
    said, source = _Said(body), _Source(request)
    if _CITATION.search(body) or source.is_known_by(said):
        return ""
    older = source.older_names
    small = source.small
    knows_older = said.has_any_of(older, small=small)
    if not knows_older and (opens or (len(older) >= FEWEST_NAMED and _ADDRESSES.search(body))):
        return ANSWERS
    if _is_report(body) or len(_WORD.findall(body)) < FEWEST_WORDS:
        return ""
    names = older | source.recent_names
    many = len(names) >= FEWEST_NAMED
    return NAMES_NOTHING if many and not said.has_any_of(names, small=small) else ""


def _without_preface(text: str) -> str:
    """Return the text behind "Sure! Here is the summary:"; all of it where nothing follows."""
    stripped = text.strip()
    match = _PREFACE.match(stripped)
    return stripped[match.end() :] if match and speaks_to_user(match[0]) else stripped


class _Said:
    """What a text names and which words it has."""

    def __init__(self, text: str) -> None:
        read = text[:READ_OF_MESSAGE]
        self.text = normal(read)
        self.named = _named([read], small=())
        self._words = frozenset(_WORD.findall(self.text))

    def has_any_of(self, names: Mapping[str, str], *, small: Container[str]) -> bool:
        """Whether the text has one of the names, each with its kind.

        One word of a name will do, unless it is one of the `small` words, which anybody writes.
        """
        return any(self._has(key, kind, small) for key, kind in names.items())

    def _has(self, key: str, kind: str, small: Container[str]) -> bool:
        if kind == NAME:
            return any(part in self._words for part in _parts(key, small))
        return key in self.named or (kind != NUMBER and key in self.text)


class _Source:
    """What a request is to be summarised from: the last turn apart from everything before it."""

    def __init__(self, request: SummaryRequest) -> None:
        older, recent = request.items[:-LAST_TURN], request.items[-LAST_TURN:]
        self._older = [request.previous, *request.texts, *_texts(older)]
        self._recent = [*_texts(recent), *_texts(request.kept)]

    def is_known_by(self, said: _Said) -> bool:
        """Whether the text names something that was named before the last turn, and not in it."""
        if not said.named:
            return False
        older, recent = normal("\n".join(self._older)), self._recent_text
        return any(
            _stands(part, older, recent)
            for key, kind in said.named.items()
            for part in (_parts(key, self.small) if kind == NAME else [key])
        )

    @cached_property
    def _recent_text(self) -> str:
        return normal("\n".join(self._recent))

    @cached_property
    def older_names(self) -> dict[str, str]:
        """What was named before the last turn, and not in it: the kind of each key."""
        recent = self._recent_text
        named = _named(self._older, small=self.small)
        return {key: kind for key, kind in named.items() if key not in recent}

    @cached_property
    def recent_names(self) -> dict[str, str]:
        """What the last turn named."""
        return _named(self._recent, small=self.small)

    @cached_property
    def small(self) -> frozenset[str]:
        """The words that are written small somewhere: no names."""
        spoken = (text[:READ_OF_MESSAGE] for text in (*self._older, *self._recent))
        return small_words((" ".join({word for text in spoken for word in text.split()}),))


def _texts(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        yield item.text
        yield from (call.arguments for call in item.tool_calls)


def _named(texts: Iterable[str], *, small: Container[str]) -> dict[str, str]:
    """Return the kinds of what texts name, by key; short numbers are left out."""
    named: dict[str, str] = {}
    left = READ_IN_ALL
    for text in texts:
        if left <= 0:
            break
        read = text[: min(left, READ_OF_MESSAGE)]
        left -= len(read)
        for one in find_entities(read, small=small):
            # Short numbers stand everywhere.
            if one.kind != NUMBER or len(one.key) >= SHORTEST_NUMBER:
                named[normal(one.key)] = one.kind
    return named


def _stands(key: str, older: str, recent: str) -> bool:
    return _is_word(key, older) and key not in recent


def _is_word(word: str, text: str) -> bool:
    """Whether a word stands in a text with nothing of a word or a number around it."""
    return word in text and bool(re.search(rf"(?<!\w){re.escape(word)}(?!\w|[.,:]\d)", text))


def _parts(key: str, small: Container[str]) -> list[str]:
    """Return the words of a name that say something."""
    words = _WORD.findall(key)
    return [word for word in words if len(word) >= SHORTEST_PART and word not in small]

"""Which language a text is written in, or that nobody can be sure.

Scripts decide where only one language here uses them; elsewhere words that every text of a language
has. A wrong answer costs a summary, "unknown" costs nothing: whatever is short, mixed or near to a
language that is not listed stays unknown.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from string import ascii_letters

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import HAN, HANGUL, KANA, word_set

UNKNOWN = ""
LANGUAGES = frozenset({"zh", "ja", "ko", "ru", "ar", "en", "de", "fr", "es", "pt", "it", "nl"})

LONGEST_LOOK = 20_000
FEWEST_LETTERS = 24
"""Of Latin, Cyrillic or Arabic script; a character of the wide scripts says as much as three."""
LETTERS_PER_WIDE = 3
CLEAR_SHARE = 0.7
"""Of the letters, what one script must have."""
WIDE_SHARE = 0.45
"""Chinese, Japanese and Korean write names, commands and units in Latin letters."""
KANA_SHARE = 0.1
"""Of Japanese, at least so much is kana; Chinese has none but in names."""
STRAY_KANA_SHARE = 0.02
FEWEST_SURE_HAN = 40
FEWEST_WORDS = 3
"""Words of a language that must be there, each another one."""
WORD_SHARE = 0.1
MARGIN = 1.6
"""The words of the next language must be so much fewer."""

_WIDE_HAN = lazy_pattern(f"[{HAN}]+")
_WIDE_KANA = lazy_pattern(f"[{KANA}]+")
_WIDE_HANGUL = lazy_pattern(f"[{HANGUL}]+")
_CYRILLIC = lazy_pattern(r"[\u0400-\u052f]+")
_ARABIC = lazy_pattern(r"[\u0620-\u064a\u0671-\u06d3]+")
_LATIN = lazy_pattern(r"[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]+")
_OTHER = lazy_pattern(r"[\u0370-\u03ff\u0530-\u05ff\u0700-\u109f\u1200-\u1cff]+")
# Addresses, paths and identifiers are of no language.
# What stands between spaces and holds a sign of code or a digit; begun at its first sign alone.
_NO_WORD = lazy_pattern(r"(?<![!-~])[!-.:;?A-Z\[\]^`a-z|~]*+[0-9_/\\@<>{}=][!-~]*+")
_WORD = lazy_pattern(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# A class that lists its characters is looked at far more quickly.
_WORD_ASCII = lazy_pattern(r"[a-z]+(?:'[a-z]+)*")
_NO_LETTERS = bytes(set(range(128)) - set(map(ord, ascii_letters)))

_CHINESE_ONLY = lazy_pattern(
    r"[的了是我你他她们們这這那吗嗎吧呢很没沒请請说說个個从從对對为為与與让讓给給还還]"
)
_NOT_RUSSIAN = lazy_pattern(r"[іїєґўјљњћђџѓќѕәғқңөұүһӣӯҳҷ]", re.IGNORECASE)
_NOT_ARABIC = lazy_pattern(r"[\u067e\u0686\u0698\u06a9\u06af\u06cc\u06d2\u0679\u0688\u0691\u06ba]")
_ARABIC_ARTICLE = lazy_pattern(r"\b[وبفلك]?ال[\u0620-\u064a]{2,}")

_RUSSIAN = word_set(
    "и в не на что с по это как для или от но из к мы он она они вы был была было если только еще "
    "ещё уже его её чтобы после нет есть при до под все так кто пока когда"
)
_RUSSIAN_ONLY = word_set(
    "что это как для только если ещё еще чтобы его её они был была были есть вы кто пока когда"
)
_ARABIC_WORDS = word_set(
    "في من على إلى عن أن إن لا ما هذا هذه التي الذي كان مع قد لم أو ثم هو هي كل بعد قبل يجب تم ليس"
)

# Function words. The second table are neighbours that must not be taken for one of the first.
_WORDS_OF = {
    "en": "the of and to in is was that it for with as on be at by this are from not have has had "
    "or an but which they their were been will would should can you i he she we his her its "
    "if when there about after before must wants asked what who how than then so do does "
    "did a",
    "de": "der die das und in ist nicht ein eine einen einem einer zu den von mit auf für im dem "
    "des sich auch als es an werden wird aus er sie ich wir hat haben bei nach nur noch "
    "oder aber wie dass um am war sind über vor zum zur kein keine wenn durch soll muss bis",
    "fr": "le la les de des et en un une est que qui dans pour pas sur au aux avec ce cette il "
    "elle ne se par plus du sont ou mais nous vous je son sa ses été être a ont comme leur "
    "si après avant doit être c'est n'est qu'il d'un d'une l'utilisateur",
    "es": "el la los las de y en un una es que no se con por para del al lo como más pero su sus "
    "ha fue está este esta son sin sobre también hay si le yo muy o ser cuando desde "
    "después usuario debe",
    "pt": "o a os as de e em um uma é que não se com por para do da dos das no na nos nas ao como "
    "mais mas seu sua foi está este esta são sem sobre também há ou ser quando você isso "
    "pelo pela até usuário deve",
    "it": "il lo la i gli le di e in un una è che non si con per del della dei delle al alla da "
    "come più ma suo sua ha sono questo questa anche o se nel nella sul essere quando dopo "
    "prima ci utente deve degli dello",
    "nl": "de het een en van in is niet dat op te zijn met voor die aan er om ook als maar dan "
    "bij nog uit door naar over hij zij ze wij we ik je heeft hebben wordt worden werd geen "
    "of wat kan moet deze dit na tot",
    "sv": "och att det i en som är på för med av den till inte har de om ett var jag vi från men "
    "så kan eller när ska ej vid",
    "da": "og at det i en som er på for med af den til ikke har de om et var jeg vi fra men så "
    "kan eller når skal ved der",
    "no": "og at det i en som er på for med av den til ikke har de om et var jeg vi fra men så "
    "kan eller når skal ved",
    "af": "die en van in is nie dat op te het met vir wat ook as maar dan by nog uit deur na oor "
    "hy sy ons ek jy word geen of kan moet hierdie wees was",
    "pl": "i w nie na się z do jest to że o jak ale po co za od przez dla tak jego czy być lub "
    "oraz jako są tym może przed",
    "cs": "a v je na se že to s z do o k pro jako ale by po který která které nebo jsou být jen "
    "při není musí pokud",
    "ro": "și în de la nu a este cu o pe că din se un pentru mai care ce sunt au fost prin dar "
    "sau lui ca al ale fi",
    "ca": "el la els les de i en un una és que no es amb per del al ho com més però seu seva ha "
    "va està aquest aquesta són sense sobre també hi si o ser quan des dels",
    "gl": "o a os as de e en un unha é que non se con por para do da dos das no na nos nas ao "
    "como máis mais foi está este esta son sen sobre tamén ou ser cando dun dunha deste",
    "tr": "ve bir bu için ile de da ne olarak çok daha gibi olan var ama sonra kadar değil o en "
    "ya veya",
    "id": "yang dan di ini itu untuk dengan dari tidak pada adalah dalam akan ke oleh atau juga "
    "saya ada bisa sudah harus kami anda",
    "fi": "ja on ei se että hän oli mutta ovat niin kun myös joka tai kuin sen ole vain jos voi",
    "hu": "a az és hogy nem is egy ez meg van de ha csak már volt mint vagy azt lesz kell",
    "et": "ja on ei see et ta oli aga kui ka mis või selle ning pole oma siis ainult",
    "vi": "và của là có không được cho một trong các với người này những đã để",
}  # fmt: skip


def _weights() -> dict[str, tuple[tuple[str, float], ...]]:
    found: dict[str, list[str]] = {}
    for language, words in _WORDS_OF.items():
        for word in word_set(words):
            found.setdefault(word, []).append(language)
    return {
        # A word of many languages says little.
        word: tuple((language, 1 / len(languages)) for language in languages)
        for word, languages in found.items()
    }


_LATIN_WORDS = _weights()
FUNCTION_WORDS = _LATIN_WORDS.keys()
"""Words that every text of a language has, and that no statement is about."""


def language_of(text: str) -> str:
    """Return the language's two letters where it is sure, one of LANGUAGES; else UNKNOWN."""
    return _language_of(text[:LONGEST_LOOK])


@lru_cache(maxsize=64)
def _language_of(text: str) -> str:
    """Return the same of what is read; one run asks it again and again of the same few texts."""
    plain = _NO_WORD.sub(" ", text)
    scripts = _scripts(plain)
    letters = sum(scripts.values())
    if letters < FEWEST_LETTERS:
        return UNKNOWN
    wide = scripts["han"] + scripts["kana"] + scripts["hangul"]
    if wide >= WIDE_SHARE * letters:
        return _wide(plain, scripts, wide) if wide + scripts["latin"] >= 0.9 * letters else UNKNOWN
    for script, judge in (("cyrillic", _cyrillic), ("arabic", _arabic), ("latin", _latin)):
        if scripts[script] >= CLEAR_SHARE * letters:
            return judge(plain)
    return UNKNOWN


def _scripts(text: str) -> dict[str, int]:
    """Return how much each script says, in letters."""
    if text.isascii():
        return Counter(latin=len(text.encode().translate(None, _NO_LETTERS)))
    return Counter(
        latin=_length(_LATIN, text),
        han=LETTERS_PER_WIDE * _length(_WIDE_HAN, text),
        kana=LETTERS_PER_WIDE * _length(_WIDE_KANA, text),
        hangul=LETTERS_PER_WIDE * _length(_WIDE_HANGUL, text),
        cyrillic=_length(_CYRILLIC, text),
        arabic=_length(_ARABIC, text),
        other=_length(_OTHER, text),
    )


def _length(runs: re.Pattern[str], text: str) -> int:
    return sum(map(len, runs.findall(text)))


def _wide(text: str, scripts: dict[str, int], wide: int) -> str:
    if scripts["hangul"] >= CLEAR_SHARE * wide:
        return "ko"
    if scripts["hangul"]:
        return UNKNOWN
    if scripts["kana"] >= KANA_SHARE * wide:
        return "ja"
    if scripts["kana"] > STRAY_KANA_SHARE * wide:
        return UNKNOWN
    # Japanese can do without kana in a heading or an address, not in forty characters.
    sure = scripts["han"] >= FEWEST_SURE_HAN * LETTERS_PER_WIDE or _CHINESE_ONLY.search(text)
    return "zh" if sure else UNKNOWN


def _cyrillic(text: str) -> str:
    if _NOT_RUSSIAN.search(text):
        return UNKNOWN
    words = [word.casefold() for word in _WORD.findall(text)]
    known = [word for word in words if word in _RUSSIAN]
    sure = "ы" in text.casefold() or any(word in _RUSSIAN_ONLY for word in known)
    return "ru" if sure and len(known) >= WORD_SHARE * len(words) / 2 else UNKNOWN


def _arabic(text: str) -> str:
    if _NOT_ARABIC.search(text):
        return UNKNOWN
    words = _WORD.findall(text)
    known = sum(word in _ARABIC_WORDS for word in words) + len(_ARABIC_ARTICLE.findall(text))
    return "ar" if known >= 2 and known >= WORD_SHARE * len(words) else UNKNOWN


def _latin(text: str) -> str:
    text = text.casefold().replace("’", "'")
    words = (_WORD_ASCII if text.isascii() else _WORD).findall(text)
    scores: defaultdict[str, float] = defaultdict(float)
    different: defaultdict[str, set[str]] = defaultdict(set)
    counts = Counter(words)
    for word in _LATIN_WORDS.keys() & counts.keys():
        for language, weight in _LATIN_WORDS[word]:
            scores[language] += weight * counts[word]
            different[language].add(word)
    ranked = sorted(scores, key=lambda language: scores[language], reverse=True)
    if not ranked:
        return UNKNOWN
    best = ranked[0]
    second = scores[ranked[1]] if len(ranked) > 1 else 0.0
    hits = sum(counts[word] for word in different[best])
    sure = (
        best in LANGUAGES
        and len(different[best]) >= FEWEST_WORDS
        and hits >= WORD_SHARE * len(words)
        and scores[best] >= MARGIN * second
    )
    return best if sure else UNKNOWN

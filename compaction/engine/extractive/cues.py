"""What a sentence is about and how well it reads: told by its words, its form and its speaker."""

from __future__ import annotations

import re

from compaction.engine.extractive.headings import Heading
from compaction.engine.extractive.sentences import HAN

REQUEST_WORTH = 1.3
CONSTRAINT_WORTH = 1.3
DECISION_WORTH = 1.4
OUTCOME_WORTH = 1.2
ERROR_WORTH = 1.3
TOOL_ERROR_WORTH = 4.0
STATUS_WORTH = 1.5
BOILERPLATE_WORTH = 0.4
ASIDE_WORTH = 0.6
"""A question in the middle of an assistant's message: it was answered since."""

FRAGMENT_WORTH = 0.1
"""A line of one or two words, such as a heading inside a message."""
ANNOUNCEMENT_WORTH = 0.15
"""A line that ends with a colon: what it announces stands in other lines."""
CUT_WORTH = 0.9
"""A piece of a sentence that was too long; names hide in those, so it is hardly less."""
LEANING_WORTH = 0.75
"""A sentence that starts by pointing back at another one."""
CODE_WORTH = 0.25
FIELDS_WORTH = 0.4
"""A piece of JSON."""
ROW_WORTH = 0.15
WORDY_ROW_WORTH = 0.5
"""A row of a table, whose headings stand elsewhere; one long cell can explain itself."""
FEW_WORDS_WORTH = ((3, 0.25), (5, 0.5), (7, 0.8))
"""(fewer words than, worth): short lines lean on their neighbours, which a summary leaves out."""

WORDY_CELL_WORDS = 6
LETTERS_PER_WORD = 2
"""Chinese characters that say as much as one word."""

_CUES = re.I
_REQUEST = re.compile(
    r"\b(?:please|can you|could you|would you|will you|help me|i(?:'d| would) (?:like|rather)|"
    r"i want|i need|we need|let's|need to|make sure|todo|remind me|show me|tell me)\b"
    r"|(?:^|\b(?:and|also|then|just|to|so|now) )(?:implement|fix|add|write|create|explain|put|use|"
    r"check|find|make|do|give|send)\b"
    r"|(?:^|[，。；,])请|请(?=[你您帮把给先查问确])|帮我|帮忙|我想|我要|我需要|希望|麻烦|能否|能不能|可以.{0,8}吗|需要|你[把去看先写读]|列全|写一下|查一?查|算一?算",
    _CUES,
)
_RULE = re.compile(
    r"\b(?:must|cannot|only if|at most|at least|no more than|no less|no later than|deadline|"
    r"required?|requirement|constraint|allergic|forbid(?:den)?|not allowed|"
    r"before (?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
    r"|必须|不要|不能|不得|不可|只能|至少|至多|最多|禁止|务必|一定要|不超过|不许|一律",
    _CUES,
)
_WISH = re.compile(
    r"\b(?:(?<!have )(?<!'ve )never|always(?! (?:was|been|the))|limit(?:ed)?|budget|prefer|avoid|"
    r"has to|have to|rules?|no calls)\b|(?:^|\b(?:please|and|but|so|i) )(?:do not|don't)\b"
    r"|截止|预算|限制|要求|避免|偏好|以内|之前",
    _CUES,
)
_DECISION = re.compile(
    r"\b(?:decided?(?! by)|decision|agreed?|we(?:'ll| will) (?:use|go)|go(?:ing)? with|chose|"
    r"chosen|settled on|switch(?:ed)? to|instead of|approved|confirmed|plan is|opted)\b"
    r"|决定|确定|采用|选择|选定|改为|改成|同意|确认|就用|批准|定为|取代|定了|批了|生效|敲定|改用|封顶",
    _CUES,
)
_ANSWER = re.compile(
    r"(?:(?:yes|yep|yeah|no|ok|okay|agreed|fine)[,.:;!]|(?:option \w+|go (?:for|with|ahead)|do it|"
    r"keep|forget|take|use|leave)\b)"
    r"|[好行对选就列可][，,。①-⑨]|选[A-Z\d①-⑨]|可以[，。]|[A-Z]加[A-Z]",
    _CUES,
)
_OUTCOME = re.compile(
    r"\b(?:booked|reserved|refund(?:ed)?|issued|ordered|shipped|delivered|committed|fixed|pass(?:ed)?|"
    r"merged|done|saved|added|created|updated|released|reproduced|found|cause|because)\b"
    r"|已|完成|通过|到齐|关闭|合计|原因|因为|结论|建议",
    _CUES,
)
_OPEN = re.compile(
    r"\b(?:tbd|unclear|undecided|unresolved|still open|open (?:question|point)s?|not yet|"
    r"remains to|waiting for|awaiting|to be (?:confirmed|decided))\b"
    r"|待定|待确认|待测|未决|未知数|未达成|未解决|没有答复|还没回|悬着|不清楚|尚未",
    _CUES,
)
_ERROR = re.compile(
    r"\b(?:\w*error|\w*exception|fail(?:ed|s|ure)?|traceback|fatal|panic|denied|timed? ?out|"
    r"timeout|refused|not found|crash(?:ed)?|bug|broken|critical|warning|exit code [1-9]\d*)\b"
    r"|错误|失败|异常|超时|崩溃|报错|拒绝|警告|逾期",
    _CUES,
)
_NO_ERROR = re.compile(
    r"\"(?:\w*error\w*|fail\w*|warnings?)\": ?(?:null|false|0\b|\"\"|\[\])|\b0 fail", _CUES
)
_STATUS = re.compile(r"\"(?:\w*status|reason|result|state|message|note|状态|说明|备注)\":", _CUES)
_BOILERPLATE = re.compile(
    r"\b(?:thank(?:s| you)|looking forward|let me know|feel free|great question|happy to help|"
    r"perfect|excellent|hope (?:you|this|that)|appreciate|you're welcome|no problem|sounds good|"
    r"of course|any other questions|glad to|let me (?:check|look|see)|give me a moment|i'm sorry|"
    r"sorry about|before i forget|good morning)\b|^(?:hi|hello|hey|morning)\b"
    r"|谢谢|感谢|不客气|没问题|您好|你好|随时告诉我|希望对你有帮助|好的[，。]",
    _CUES,
)
_LEANING = re.compile(
    r"(?:it|he|she|they|that|this|these|those|so|and|but|then|which|or)(?:'\w+)?\b|[她他它这那]",
    _CUES,
)
_HYPOTHESIS = re.compile(r"\bif\b|\bmaybe\b|\bperhaps\b|若|如果|假如|要是|也许|可能", _CUES)
_FRAGMENT = re.compile(r"[^\W\d]{1,20}(?: [^\W\d]{1,20})?[.!:]?", re.ASCII)
_QUESTION_END = re.compile(r"[?？][\"'”’)\]]{0,3}$|[吗呢][。]?$")
_ANNOUNCEMENT_END = re.compile(r"[:：][*_]{0,2}$")
_CUT_END = re.compile(r"[,，、–—]$")
_FIELD = re.compile(r"\"[^\"]{1,60}\": ?\S")
_CELL_EDGE = re.compile(r"\s?\|\s?")
_CODE = re.compile(
    r"(?:def|class) \w+[(:]|return\b.{0,200}[\w)\]}\"']$|import \w[\w.]*$|from [\w.]+ import "
    r"|assert .{0,200}(?:==| in |[(\[])|raise \w+|(?:except|elif|for|if|while|with)\b.{0,200}:$"
    r"|(?:try|else|finally):|self\.|@\w+(?:\(|$)|[+-]{3} |@@|diff --git|\$ |>>> |<\w"
    r"|(?:const|let|var|function) \w+ ?[=(]"
    r"|[\w.\"'\[\]]{1,60}(?:: \w[\w\[\], |]{0,60})? ?(?:[-+*/|]?=|<-|:=) ?\S"
    r"|[\w.]{1,60}\((?:.{0,200}\))?[,:;]?$"
    r"|.{0,200}[{]$"
)
_WORD = re.compile(rf"[^\W\d_{HAN}]{{2,40}}")
_HAN = re.compile(f"[{HAN}]")


def classify(sentence: str, *, role: str, last: bool) -> Heading:
    """The heading a sentence belongs under, from its cue words and from who said it when."""
    if role == "tool" or is_code_line(sentence):
        return Heading.RESULTS
    user = role == "user"
    if is_question(sentence):
        if last:
            return Heading.QUESTIONS
        return Heading.REQUESTS if user else Heading.RESULTS
    if _OPEN.search(sentence) and not user:
        return Heading.QUESTIONS
    if _decides(sentence, user=user):
        return Heading.DECISIONS
    if _constrains(sentence, user=user):
        return Heading.CONSTRAINTS
    if user and _REQUEST.search(sentence):
        return Heading.REQUESTS
    return Heading.RESULTS


def cue_worth(sentence: str, *, role: str, last: bool) -> float:
    """The factor that the words of a sentence earn it."""
    score = BOILERPLATE_WORTH if _BOILERPLATE.search(sentence) else 1.0
    failed = bool(_ERROR.search(sentence)) and not _NO_ERROR.search(sentence)
    if role == "tool":
        if failed and not is_code_line(sentence):
            score *= TOOL_ERROR_WORTH
        return score * STATUS_WORTH if _STATUS.search(sentence) else score
    if is_code_line(sentence):
        return score
    user = role == "user"
    if not user and not last and is_question(sentence):
        return score * ASIDE_WORTH
    for earned, factor in (
        (failed, ERROR_WORTH),
        (user and _REQUEST.search(sentence), REQUEST_WORTH),
        (user and last and is_question(sentence), REQUEST_WORTH),
        (_constrains(sentence, user=user), CONSTRAINT_WORTH),
        (_decides(sentence, user=user), DECISION_WORTH),
        (_OUTCOME.search(sentence), OUTCOME_WORTH),
    ):
        if earned:
            score *= factor
    return score


def _decides(sentence: str, *, user: bool) -> bool:
    if _HYPOTHESIS.search(sentence):
        return False
    return bool(_DECISION.search(sentence) or (user and _ANSWER.match(sentence)))


def _constrains(sentence: str, *, user: bool) -> bool:
    return bool(_RULE.search(sentence) or (user and _WISH.search(sentence)))


def form_worth(sentence: str) -> float:
    """The factor for how well a line reads alone: 1 for a whole sentence, less for scraps."""
    if _FRAGMENT.fullmatch(sentence):
        return FRAGMENT_WORTH
    cells = _CELL_EDGE.split(sentence) if "|" in sentence else []
    if len(cells) > 2:
        wordy = max(map(count_words, cells)) >= WORDY_CELL_WORDS
        return WORDY_ROW_WORTH if wordy else ROW_WORTH
    if _ANNOUNCEMENT_END.search(sentence):
        return ANNOUNCEMENT_WORTH
    if _FIELD.search(sentence):
        return FIELDS_WORTH
    score = 1.0
    if is_code_line(sentence):
        score = CODE_WORTH
    elif _CUT_END.search(sentence):
        score = CUT_WORTH
    if _LEANING.match(sentence):
        score *= LEANING_WORTH
    words = count_words(sentence)
    return score * next((factor for limit, factor in FEW_WORDS_WORTH if words < limit), 1.0)


def is_question(sentence: str) -> bool:
    """Whether a sentence asks something."""
    return bool(_QUESTION_END.search(sentence))


def is_code_line(sentence: str) -> bool:
    """Whether a line is a piece of a program rather than of a conversation."""
    return bool(_CODE.match(sentence)) and not _HAN.search(sentence)


def count_words(text: str) -> int:
    """How many words a text has, in a measure that serves Chinese as well."""
    latin = len(_WORD.findall(text))
    return latin if text.isascii() else latin + len(_HAN.findall(text)) // LETTERS_PER_WORD

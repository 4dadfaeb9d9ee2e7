"""Refusals that are about the form of a request and not about its size: which part is meant.

Servers say it in their own words, chat templates in the words of whoever wrote them, often under
status 500. adaptations.py says what is done about each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from chatapp.llm.error_kinds import ErrorKind
from chatapp.llm.error_overflow import any_of
from chatapp.llm.error_parsing import Said
from chatapp.messages.patterns import lazy_pattern

_STATUSES = (None, 200, 400, 404, 405, 409, 415, 422, 424, 500, 501)
# What a server that renders a chat template says when the template refuses the messages.
TEMPLATE = any_of(
    r"\bjinja\b", r"raise_exception", r"template ?error", r"undefinederror",
    r"chat[ _]template", r"apply_chat_template", r"failed to (?:apply|render|parse) "
    r".{0,20}template", r"\{%-? ", r"\bat row \d+, column \d+",
    r"\b(?:dict|list|str) object'? has no (?:attribute|element)\b",
    r"\btemplate\b.{0,40}\b(?:user|assistant|roles?|messages?)\b",
    # Of the code behind a template: a text was put together with what is none.
    r"\bcan only concatenate\b", r"\bunsupported operand type", r"\bis not a mapping\b",
)  # fmt: skip
ROLE_ORDER = any_of(
    r"\broles?\b.{0,40}\balternat",
    r"\balternat.{0,60}\b(?:user|assistant|roles?)\b",
    r"\b(?:consecutive|successive|adjacent)\b.{0,40}\b(?:user|assistant|messages?|roles?)\b",
    r"\b(?:user|assistant|model) (?:messages?|turns?|roles?)\b.{0,40}\b(?:in a row|consecutive)",
    r"\b(?:last|final)\b.{0,30}\b(?:message|role|turn|content)\b.{0,60}"
    r"\b(?:user|tool|assistant|must|should|cannot|can't)\b",
    r"\bfirst\b.{0,30}\b(?:message|role|turn)\b.{0,60}\b(?:user|must|should)\b",
    r"\b(?:conversation|messages?|history)\b.{0,30}\b(?:must|should|has to|needs to|have to) "
    r"(?:start|begin|end)\b",
    r"\bexpected (?:last )?role\b",
    r"\bassistant (?:message |response |turn )?prefill\b",
    r"\bprefill(?:ing)?\b.{0,40}(?:not supported|unsupported)",
    r"after (?:the )?(?:optional )?system message",
    r"unexpected role '?\"?(?:user|assistant)\b",
    r"multiturn requests? alternate",
    r"\b(?:user|assistant|model|tool) (?:turn|message|role)s?\b.{0,30}\bfollowed by\b",
    r"\bno user (?:query|message|turn|prompt)\b",
    r"\bcontinue from message role\b",
    r"\bassistant messages at the end\b",
    r"please ensure that .{0,40}(?:user|function).{0,40}turn",
    r"\b(?:cannot|can't|(?:must|may|should) not) (?:start|begin|end) with\b.{0,20}"
    r"\b(?:user|assistant|model|tool)\b",
    r"\b(?:starts|begins|ends) with an? (?:user|assistant|model|tool)\b",
    r"\b(?:two|several|multiple|more than one) (?:user|assistant|model) (?:message|turn)s?\b",
    # By their places in the list.
    r"\blength of (?:the )?messages\b.{0,30}\b(?:odd|even)\b",
    r"\brole of (?:the )?message\b.{0,20}\b(?:odd|even)\b",
    r"\brole sequence\b",
    r"\bexpected '?\"?(?:user|assistant)\b.{0,6}\b(?:got|found|received)\b",
)
SYSTEM_ORDER = any_of(
    r"\bsystem (?:message|role|prompt)s?\b.{0,60}\b(?:beginning|first|start|only|once|"
    r"multiple|more than one|"
    r"not supported|unsupported)\b",
    r"\b(?:system|developer) (?:instruction|role|message|prompt)s?\b.{0,30}\bnot "
    r"(?:enabled|supported|allowed|accepted)\b",
    r"(?:\bnot|n't) (?:support|accept|allow)\w*.{0,20}\b'?\"?(?:system|developer)\b",
    r"\bno (?:system|developer) (?:message|role|prompt)s?\b",
    r"\b(?:only|more than|just) one system\b|\ba single system (?:message|prompt)\b",
    r"\bmultiple system\b",
    r"unexpected role '?\"?system\b",
    r"\bunknown variant '?(?:system|developer)\b",
    r"\broles are (?:supported|allowed|accepted)\b.{0,20}\bsystem\b",
    r"\bvalid role: user, model\b",
)
ARGUMENTS = any_of(
    r"\barguments\b.{0,60}\b(?:json|parse|object|dict|valid|decode|string)",
    r"\b(?:parse|decode|deserialize|load)\w*\b.{0,40}\barguments\b",
    r"\bunmarshal\w*\b.{0,100}arguments\b",
    r"tool_use\W{0,6}\.?input\b",
    r"\binput: input should be a valid dictionary",
    r"expecting value: line \d+ column \d+",
    r"unterminated string starting at",
    r"expecting (?:property name|',' delimiter|':' delimiter)",
    r"can only get item pairs from a mapping",
    r"unexpected end of (?:json|data|input)",
    r"json\.exception\.parse_error",
    r"\bextra data: line \d",
    r"looks like object, but",
    r"\bfunction_call\W{1,4}args\b|\bfunction_response\W{1,4}response\b",
)
IDS = any_of(
    r"\btool[ _-]?(?:call|use)[ _-]?ids?\b.{0,80}\b(?:must|should|length|long|pattern|"
    r"match|characters?|a-z|format|has to be|have to be)",
    r"\b(?:tool_calls?|tool_use|call)\W.{0,12}\bid\b.{0,80}\b(?:long|length|pattern|"
    r"match|characters?|format|invalid)",
    r"\bid\b.{0,30}\b(?:must|should) be a-z",
    r"invalid.{0,20}\bcall_id\b",
    r"\b(?:duplicate|repeated)\w*.{0,20}\b(?:tool|call).{0,20}\bids?\b",
)
ID_PLACE = lazy_pattern(
    r"(?:tool_calls?.{0,6}|\b(?:messages|input)\W?\d+\W{0,2})\.?(?:call_|tool_call_)?id\b"
)
TOOLS = any_of(
    r"\btools\b ?=? ?(?:param|field|list)?.{0,40}\b(?:must|required|specified|"
    r"provided|missing|defined)\b",
    r"without.{0,20}\btools?\b ?=?",
    r"(?:\bnot|n't) (?:support|allow|enable)\w*.{0,30}\b(?:tools?|functions?|tool[ "
    r"_](?:use|calls?|calling)|"
    r"function[ _]call\w*)\b",
    r"\b(?:tools?|tool[ _](?:use|calls?|calling|choice)|function[ _]call\w*)\b.{0,30}\b"
    r"(?:not (?:supported|enabled|available|allowed)|unsupported)",
    r"toolconfig",
    r"\bunsupported param\w*:? '?tools\b",
    r"\b(?:invalid|unsupported|unknown|unexpected) (?:value|role|variant):? "
    r"'?\"?(?:roleenum\.)?tool\b",
    r"\bsingle tool[- ]calls?\b",
    r"\btool choice requires\b|\btools? param\w* requires\b",
    r"\bno endpoints?\b.{0,40}\btool use\b",
    r"\bmust (?:define|include|declare|provide|pass) (?:the )?(?:\w{1,12} )?tools\b",
    r"\b(?:tool|function) ['\"].{0,64}['\"] (?:does not exist|not found|is not defined|is unknown)",
    r"\b(?:unknown|undefined|no such) (?:tool|function)\b",
    r"\bthought_?signature\b",
)
_EXTRA = r"\bextra (?:inputs|fields) (?:are )?not (?:permitted|allowed)\b"
_THOUGHT_PLACE = (
    r"\bmessages?[\[.]\d+[\w.\[\]]{0,80}?"
    r"(?:reason|think|thought|signature|encrypted|tool_use\.(?!(?:id|name|type|input)\b))"
)
THOUGHTS = any_of(
    r"\b(?:thinking|redacted_thinking)\b.{0,60}\b(?:block|signature|expected|cannot|"
    r"must|modified|invalid)",
    r"\bsignature\b.{0,40}\b(?:invalid|thinking|verif|mismatch|missing|required)",
    r"\breasoning_content\b.{0,60}\b(?:invalid|not|must|missing|unsupported|"
    r"unexpected|remove|extra|required)",
    r"\b(?:invalid|unsupported|unexpected|unknown|remove|"
    r"extra)\b.{0,40}\breasoning(?:_content|_details)?\b",
    r"\b(?:missing|lacks?|requires?|without|needs?)\b.{0,20}\breasoning_content\b",
    r"(?:\bnot|n't) (?:support|accept|allow)\w*.{0,20}\b(?:thinking|reasoning)\b",
    r"\b(?:thinking|reasoning) is not (?:supported|available|enabled)\b",
    r"\b(?:thinking|reasoning|analysis)\b.{0,30}\bin (?:an? |the )?assistant (?:message|turn)\b",
    r"\breasoning\W{1,3}is (?:unsupported|not (?:supported|permitted|allowed))",
    r"\bthoughts?\b.{0,40}\bmust be passed back",
    r"\breasoning[ _](?:details?|blocks?|items?)\b.{0,40}\b(?:preserved|passed back|sent back)\b",
    # A field of a message, or of its part, that another server gave with its thoughts.
    rf"{_THOUGHT_PLACE}[\w.\[\]]{{0,60}}\W{{1,4}}{_EXTRA}",
    rf"{_EXTRA}.{{0,20}}{_THOUGHT_PLACE}",
)
EXPECTED_THOUGHTS = lazy_pattern(r"\bexpected \W?(?:redacted_)?thinking\b")
PARTS = any_of(
    r"\binvalid value: '(?:thinking|redacted_thinking|reasoning|tool_use|tool_result|"
    r"document|image|video\w*|audio\w*)'",
    r"\b(?:image|vision|multi-?modal|audio|video|file|document)s?\b.{0,40}\b(?:not "
    r"(?:supported|enabled|allowed)|"
    r"unsupported|not a multimodal)",
    r"(?:\bnot|n't) (?:support|accept|allow)\w*.{0,30}\b(?:images?|vision|"
    r"multi-?modal|audio|video|files?|image_url)\b",
    r"\b(?:image|audio|video|file)\b.{0,40}\bonly (?:allowed|supported)\b",
    r"\bat most 0 (?:image|audio|video)",
    r"\bnot a (?:multi-?modal|vision)\b|\btext[- ]only model\b",
    r"\bonly (?:accepts?|supports?|takes?|allows?) text\b(?!/)",
    r"\b(?:images?|audio|video|files?)(?: inputs?)? (?:is|are) not available\b",
    r"\b(?:unsupported|unknown|invalid) content part\b",
    # One that cannot be used, or of which there is too much.
    r"\b(?:unsupported|invalid|corrupt\w*|unreadable|malformed) (?:image|audio|video|media|pdf)\b",
    r"\b(?:not|unable to|failed to|cannot) (?:process|download|fetch|decode|read|open)\b.{0,20}"
    r"\b(?:image|picture|audio|video|media|pdf)s?\b",
    r"\b(?:maximum of|at most|limit of|limited to) \d+ (?:pdf )?pages\b",
    r"\btoo many (?:pdf )?pages\b",
    r"\bno endpoints?\b.{0,40}\b(?:image|audio|video|file|pdf)s?\b",
)
PART_PLACE = lazy_pattern(r"\bcontent\W{1,2}\d+\W{0,2}\.?type\b")
WRONG_WIRE = any_of(
    r"\b(?:only|not) (?:supported|available|offered|"
    r"accessible).{0,30}\bv1/(?:responses|chat/completions)",
    r"\bv1/(?:chat/completions|responses)\b.{0,60}\bnot (?:supported|available|found|a valid)",
    r"\bnot (?:a chat model|supported in the v1/|supported (?:with|by|via|through) "
    r"the (?:chat|responses))",
    r"\buse the (?:responses|chat completions?) (?:api|endpoint)",
    r"invalid url \((?:post|get) /\S*(?:responses|chat/completions)",
    r"\buse /?v1/(?:responses|chat/completions)\b",
    r"\bunsupported_api_for_model\b",
    r"\bresponses api is (?:unavailable|not (?:supported|available|enabled))",
    r"\b(?:post|get|url:?) ['\"]?/\S{0,40}(?:responses|chat/completions)\b",
)
_PARAMETERS = (
    r"(?:temperature|top_p|max_tokens|max_completion_tokens|max_output_tokens|stream_options|"
    r"parallel_tool_calls|tool_choice|reasoning[_.]?effort|include_usage|include)"
)
PARAMETER_NAME = lazy_pattern(rf"(?<![a-z_]){_PARAMETERS}(?![a-z_])")
_NAMED = rf"(?<![a-z_]){_PARAMETERS}(?![a-z_])"
PARAMETER_WORDS = any_of(
    rf"{_NAMED}.{{0,80}}(?:\bnot|n't) (?:support|permitted|allowed|accept|available)",
    rf"{_NAMED}.{{0,80}}\b(?:unsupported|unknown|unrecogni[sz]ed|unexpected|invalid|deprecated|extra|"
    r"only (?:the )?default|must be (?:1|set|exactly|default)|use '?max_|cannot (?:both )?be|"
    r"may only be|only (?:allowed|supported))",
    rf"{_NAMED}\W.{{0,20}}(?:不支持|非法|错误|無効|不正)|(?:不支持|非法|有误|错误|無効).{{0,20}}{_NAMED}",
    rf"(?:\bnot|n't) (?:support|permit|allow|accept)\w*.{{0,80}}{_NAMED}",
    rf"\binstead of\b.{{0,20}}{_NAMED}",
    rf"{_NAMED}.{{0,60}}\b(?:not (?:recogni[sz]ed|configurable)|must be one of|"
    rf"cannot be (?:set|changed))",
    rf"\brequires? {_NAMED}|\bcannot be configured\b.{{0,20}}{_NAMED}",
    rf"\b(?:unsupported|unknown|unrecogni[sz]ed|unexpected|invalid|extra|additional|deprecated)\b"
    rf".{{0,80}}{_NAMED}",
)
# How the answer is sent; `stream` is a word of many sentences, and a part of `stream_options`.
STREAMING = any_of(
    r"(?:才能|不能|无法|不支持|必须).{0,12}非流式|(?:仅|只)支持流式|(?:仅|只)支持非流式",
    r"\bnon-?streaming\b",
    r"\bonly supports? (?:the )?stream",
    r"\bstreaming is (?:required|mandatory)\b",
    r"\bstream\b.{0,12}\b(?:must|should|has to|needs to) be (?:set to )?(?:enabled|true|false)\b",
    r"\bto stream this model\b",
    r"\bunsupported value: 'stream'",
    r"\b(?:stream|streaming|stream=true)\b.{0,20}\bnot (?:supported|allowed|available|enabled)\b",
    r"(?:\bnot|n't) support\w*.{0,12}\bstream(?:ing|s|=true)?\b",
)
# A parameter that makes a model think, under names that nobody sent.
EFFORT_WORDS = lazy_pattern(
    r"(?<![\w.\]'])(?:reasoning|thinking)(?:\.\w{1,20})?: extra inputs are not permitted"
    r"|\b(?:incompatible|not compatible|conflicts?|cannot be (?:used|combined|set)) with\b.{0,30}"
    r"\b(?:thinking|reasoning)\b"
)
# A place in what was said, or in the tools: no parameter of its own.
CONVERSATION_PLACE = lazy_pattern(
    r"(?:body\.)?(?:messages?|input|tools?|functions?|contents?|model)\b"
)
PARAMETER_CODES = any_of(
    r"unsupported_parameter", r"unsupported_value", r"unknown_parameter", r"invalid_parameter",
    r"unsupportedparams", r"extra_forbidden",
)  # fmt: skip

# What a refusal speaks of, whatever it says of it: the nouns that belong to one part of a request.
# It is asked where no wording above is found, and in this order.
_TOPICS: tuple[tuple[ErrorKind, re.Pattern[str]], ...] = (
    (
        ErrorKind.THOUGHTS_REFUSED,
        any_of(
            r"\breasoning_(?:content|details)\b",
            r"\bthinking[ _](?:blocks?|parts?|content)\b",
            r"\bsignatures?\b",
        ),
    ),
    (
        ErrorKind.IDS_REFUSED,
        any_of(
            r"\b(?:tool|function)?[ _-]?(?:call|use)[ _-]?(?:ids?|identifiers?)\b",
            r"\b(?:ids?|identifiers?) of (?:the |a |an |all )?(?:tool|function|call)",
        ),
    ),
    (
        ErrorKind.ARGUMENTS_REFUSED,
        any_of(
            r"\b(?:call|function|tool)\w*\b.{0,30}\b(?:arguments?|args|inputs?|parameters)\b",
            r"\b(?:arguments|args|inputs?|parameters)\b.{0,30}\b(?:call|function|tool)\w*\b",
            # Of templates that walk through arguments as a mapping.
            r"\bobject'? has no attribute '?(?:items|keys|values)\b|\bnot a mapping\b",
        ),
    ),
    (
        ErrorKind.TOOLS_REFUSED,
        any_of(
            r"(?<![a-z])tools?(?![a-z])|\btool(?:use|result)s?\b",
            r"\bfunctions?\b",
            # Of templates that walk through what a tool takes.
            r"\bparam_(?:fields?|spec|props?|names?)\b",
        ),
    ),
    (
        ErrorKind.PARTS_REFUSED,
        any_of(
            r"\b(?:images?|pictures?|photos?|vision|visual|audio|videos?|attachments?|multi-?modal)\b",
            r"\bimage_url\b|\binput_(?:text|image|file|audio)\b",
            r"\bcontent[ _](?:parts?|blocks?|list)\b",
            r"\bcontents?\b.{0,60}\b(?:str|strings?|texts?|list|array|sequence|null|none|nil)\b",
            r"\b(?:str|strings?|texts?|list|array|sequence|null|none|nil)\b.{0,60}\bcontents?\b",
            # Of templates that add a content to a text, where it is none.
            r"\bnonetype\b.{0,60}\b(?:iterable|subscriptable|str)\b|\bconcatenate str\b",
            r"\bunsupported operand\b",
        ),
    ),
    (
        ErrorKind.SYSTEM_ORDER,
        any_of(
            r"['\"`<](?:system|developer)['\"`>]",
            r"\b(?:roles?|authors?|kinds?|speakers?)\b.{0,20}\b(?:system|developer)\b",
            r"\b(?:system|developer)[ _-]"
            r"(?:roles?|prompts?|messages?|instructions?|turns?|entry|entries)\b",
        ),
    ),
    (
        ErrorKind.ROLE_ORDER,
        any_of(
            r"\broles?\b",
            r"\bspeakers?\b",
            r"\bauthors?\b|\bauthored\b",
            r"\bturns?\b",
            r"\balternat",
            r"\bin (?:a row|succession|sequence)\b",
            r"\buser\b.{0,60}\bassistant\b|\bassistant\b.{0,60}\buser\b",
            r"\b(?:dialog(?:ue)?|utterances?|predecessors?)\b",
            r"\b(?:human|user|assistant|ai|model) (?:message|turn|entry|entries)s?\b",
            r"\b(?:consecutive|successive|adjacent)\b",
        ),
    ),
)


def topics_of(text: str) -> Iterator[ErrorKind]:
    """Yield the kinds that an error of unknown meaning may be of, by what it speaks of."""
    words = text.lower()
    return (kind for kind, pattern in _TOPICS if pattern.search(words))


def form_of(said: Said) -> ErrorKind | None:
    """Return which part of a request's form an error is about; None where it is about none."""
    if said.status not in _STATUSES:
        return None
    return next((kind for kind, holds in _RULES if holds(said)), None)


def _place_and_words(said: Said) -> str:
    return f"{said.param} {said.words}"


def _worded(pattern: re.Pattern[str]) -> Callable[[Said], bool]:
    return lambda said: bool(pattern.search(_place_and_words(said)))


def _is_about_a_parameter(said: Said) -> bool:
    if any(one.search(said.words) for one in (PARAMETER_WORDS, STREAMING, EFFORT_WORDS)):
        return True
    if not any(PARAMETER_CODES.search(name) for name in said.names):
        return False
    names_it = PARAMETER_NAME.search(_place_and_words(said))
    return bool(names_it or (said.param and not CONVERSATION_PLACE.match(said.param)))


def _is_about_the_wire(said: Said) -> bool:
    if any("unsupported_api" in name for name in said.names):
        return True
    return bool(WRONG_WIRE.search(said.words))


_RULES: tuple[tuple[ErrorKind, Callable[[Said], bool]], ...] = (
    (ErrorKind.WRONG_WIRE, _is_about_the_wire),
    (ErrorKind.PARAMETER_REFUSED, _is_about_a_parameter),
    (ErrorKind.THOUGHTS_REFUSED, _worded(EXPECTED_THOUGHTS)),
    (ErrorKind.PARTS_REFUSED, _worded(PART_PLACE)),
    (ErrorKind.PARTS_REFUSED, _worded(PARTS)),
    (ErrorKind.IDS_REFUSED, _worded(ID_PLACE)),
    (ErrorKind.IDS_REFUSED, _worded(IDS)),
    (ErrorKind.ARGUMENTS_REFUSED, _worded(ARGUMENTS)),
    (ErrorKind.THOUGHTS_REFUSED, _worded(THOUGHTS)),
    (ErrorKind.TOOLS_REFUSED, _worded(TOOLS)),
    (ErrorKind.SYSTEM_ORDER, _worded(SYSTEM_ORDER)),
    (ErrorKind.ROLE_ORDER, _worded(ROLE_ORDER)),
    # A template that refuses the messages is no outage: waiting does not help.
    (ErrorKind.REJECTED, _worded(TEMPLATE)),
)

"""Secrets known by the name before them: `MAILER_TOKEN=…`, `"password": "…"`, `api key: …`.

The name decides how much a value must look like a secret. After `DB_PASSWORD=` nearly anything is
one; after `token =` in a program most values are none, so only what a machine drew counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from compaction.engine.extractive.sentences import word_set
from compaction.engine.fidelity.secret_shapes import places
from compaction.engine.fidelity.secret_values import (
    MARKER,
    Secret,
    is_placeholder,
    is_reference,
    looks_random,
)

PASSWORD, TOKEN, SECRET, KEY = "password", "token", "secret", "key"
LONGEST_NAME = 60
LONGEST_VALUE = 2000
LONGEST_WORD_BEFORE = 24
SHORTEST_PASSWORD = 3
SHORTEST_BARE = 4
SHORTEST_SAID = 6
SHORTEST_TOKEN = 6

_FOREIGN = (
    ("密码", PASSWORD), ("密碼", PASSWORD), ("口令", PASSWORD), ("パスワード", PASSWORD),
    ("пароль", PASSWORD), ("contraseña", PASSWORD), ("kennwort", PASSWORD), ("비밀번호", PASSWORD),
    ("令牌", TOKEN), ("密钥", KEY), ("秘钥", KEY), ("密鑰", KEY),
)  # fmt: skip
_ANCHORS = ("pass", "pwd", "secret", "token", "key", "credential", "auth", "sessid", "sessionid")
_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passwort", "passcode", "pwd")
_TOKEN_WORDS = word_set(
    "token authtoken accesstoken apitoken bottoken bearertoken refreshtoken sessiontoken usertoken "
    "sessionid phpsessid jsessionid sessid"
)
_WEAK_WORDS = frozenset({"credential", "credentials", "auth", "authorization"})
_KEY_ENDS = ("apikey", "secretkey", "accesskey", "privatekey", "authkey", "accountkey", "sharedkey")
_KEY_OWNERS = word_set(
    "api app access secret private auth authentication signing sign encryption encrypt decryption "
    "master account storage service server client consumer shared subscription webhook ssh deploy "
    "hmac aes rsa admin root integration jwt cookie openai anthropic aws azure gcp google "
    "stripe github gitlab slack twilio sendgrid mailgun datadog huggingface gemini mistral groq "
    "deepseek openrouter tavily serper cohere pinecone elevenlabs maps recaptcha fernet kms "
    "license bot"
)
_PASS_OWNERS = word_set(
    "db database smtp mysql user root admin redis mail email imap sudo ftp sftp ssh postgres pg "
    "ldap basic login http proxy mongo rabbitmq amqp wifi vpn key keystore my auth api"
)
_NOT_BEFORE = {
    PASSWORD: word_set(
        "forgot forgotten reset change changed invalid wrong show hide is has require "
        "requires required no without hash hashed validate verify check get set min max "
        "missing toggle bad incorrect needs use allow update enter"
    ),
    TOKEN: word_set(
        "max min num n total pad eos bos unk cls sep mask stop start end special next page "
        "prev previous continuation first last current per input output prompt completion "
        "count is has no invalid each every cancellation"
    ),
    SECRET: word_set("is has no top open"),
    KEY: word_set("public primary foreign sort partition cache is has no"),
}
# What may follow the word that names the secret, as in SECRET_KEY_BASE or API_TOKEN_PROD.
_AFTER = word_set(
    "prod production dev staging test live old new value base b64 base64 hex plain string raw "
    "default main us eu secondary"
)
_BOUNDARY = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAME = re.compile(r"[A-Za-z0-9_.\-]{0,40}+")
_DIGIT = re.compile(r"\d")
_OPEN, _VALUE_NAME = r"\\{0,8}[\"'`]?", r"\\{0,8}[\"']?[Vv]alue\\{0,8}[\"']?"
_SIGN = re.compile(
    rf"(?P<close>{_OPEN})(?:"
    r"\]?\*{0,2}[ \t]{0,20}(?::[ \t]?[A-Za-z_][\w.\[\]|]{0,30}(?: \| None)? =(?!=)"
    r"|(?P<sign>=>|:=|={1,3}|:(?!:)|：|＝))[ \t]{0,20}\*{0,2}[ \t]{0,4}"
    r"|(?P<says> (?:is|was|ist|war|lautet|es|est)(?: now| set to)?:? {1,2}|[是为為は][:：]? ?)"
    rf"|(?P<pair>,?\s{{1,40}}{_VALUE_NAME}\s{{0,4}}[:=]\s{{0,8}})"
    r"|(?P<cell>[ \t]{0,20}\|[ \t]{0,4})"
    r"|(?P<listed>,[ \t]{0,4})(?=\\{0,8}[\"'])"
    r"|(?P<element>>))"
)
_FLAG = re.compile(r" {1,3}(?=[^\s-])")
_QUOTE = re.compile(r"[bBrRuU]{0,2}(?P<quote>\\{0,8}[\"'`])")
_TO_SPACE = re.compile(r"[^\s\"'`\\\u2e80-\u9fff\uff00-\uffef\uac00-\ud7af]{1,2000}+")
_PLAIN = re.compile(
    r"[^\s\"'`\\,;<>|()\[\]{}\u2e80-\u9fff\uff00-\uffef\uac00-\ud7af…“”‘’]{1,2000}+"
)
_ENV = re.compile(r"[A-Z][A-Z0-9_]*")
_SENTENCE = re.compile(
    r"[A-Z][a-z]+ .*|.*[.!?:]|.*\b(?i:your|the|is|must|password|enter|for|to|characters)\b.*"
)
# Nothing else on the line, or the next pair of a connection string.
_LINE_END = re.compile(r"[ \t\r]*(?:\n|\\n|$|#|//)|[;&][A-Za-z ]{1,40}=")
_INNER_NAME = re.compile(r"([A-Za-z_.-]{2,40})[=:]")


def secrets_by_name(text: str, low: str) -> Iterator[Secret]:
    """Return the values that a name calls a secret; `low` is the text in small letters."""
    for anchor in _ANCHORS:
        if anchor in low:
            yield from _at_anchor(text, low, anchor)
    if low.isascii():
        return
    for word, kind in _FOREIGN:
        if word in low:
            for at in places(low, word):
                sign = _SIGN.match(text, at + len(word))
                if sign and not sign["element"]:
                    yield from _value_after(text, sign, word, kind)


def _at_anchor(text: str, low: str, anchor: str) -> Iterator[Secret]:
    done = 0
    for at in places(low, anchor):
        # A name inside a value that is hidden already.
        if at >= done:
            for found in _named(text, at):
                done = found.end
                yield found


def _named(text: str, at: int) -> Iterator[Secret]:
    """Return the value after the name in which an anchor stands."""
    named = _NAME.match(text, at)
    end = named.end() if named else at
    sign = _SIGN.match(text, end) or _FLAG.match(text, end)
    if sign is None:
        return
    start = at - len(_name_before(text, at))
    name = text[start:end]
    kind = kind_of_name(name, _word_before(text, start))
    if kind and _may_stand_between(text, sign, start, kind):
        yield from _value_after(text, sign, name, kind)


def kind_of_name(name: str, word_before: str = "") -> str:
    """Return which kind of secret a name stands for; empty for none.

    `word_before` is the word in front of a name of one word, as in "api key".
    """
    words = _words(name)
    while len(words) > 1 and (words[-1] in _AFTER or words[-1].isdigit()):
        words.pop()
    if not words:
        return ""
    last, before = words[-1], words[-2] if len(words) > 1 else word_before
    kind = _kind_of_word(last, before, name)
    return "" if kind and before in _NOT_BEFORE[kind] else kind


def _words(name: str) -> list[str]:
    return [word.lower() for word in _BOUNDARY.findall(name)]


def _kind_of_word(last: str, before: str, name: str) -> str:
    is_pass = last == "passe" or (last == "pass" and before in _PASS_OWNERS)
    if is_pass or last.endswith(_PASSWORD_ENDS):
        return PASSWORD
    if last in _TOKEN_WORDS:
        return TOKEN
    if last.endswith("secret") or last in _WEAK_WORDS:
        return SECRET
    if last.endswith(_KEY_ENDS):
        return KEY
    if last == "key" and (before in _KEY_OWNERS or ("_" in name and _ENV.fullmatch(name))):
        return KEY
    return ""


def _name_before(text: str, at: int) -> str:
    """Return the part of a name that stands before its anchor."""
    part = _NAME.match(text[max(0, at - LONGEST_NAME) : at][::-1])
    before = part[0][::-1] if part else ""
    # The letter of an escaped line break is no part of the name.
    is_escaped = text[at - len(before) - 1 : at - len(before)] == "\\"
    return before[1:] if is_escaped and before[:1] in ("n", "t", "r") else before


def _word_before(text: str, at: int) -> str:
    words = text[max(0, at - LONGEST_WORD_BEFORE) : at].split(" ")
    return words[-2].lower().strip("*_`\"'(") if len(words) > 1 and not words[-1] else ""


def _may_stand_between(text: str, sign: re.Match[str], start: int, kind: str) -> bool:
    """Return whether this sign gives a name its value, where the name starts at `start`."""
    if sign.re is _FLAG:
        # "the password hunter22": only a value that no word can be is taken without a sign.
        return kind == PASSWORD or text.startswith("--", start)
    if sign["element"]:
        return text[start - 1 : start] == "<" and text.find("</", sign.end(), sign.end() + 200) > 0
    if sign["cell"]:
        line = text.rfind("\n", max(0, start - LONGEST_NAME), start) + 1
        return text[line:start].lstrip().startswith("|")
    return not sign["listed"] or bool(sign["close"])


def _value_after(text: str, sign: re.Match[str], name: str, kind: str) -> Iterator[Secret]:
    start = sign.end()
    quote = _QUOTE.match(text, start)
    if quote:
        start = quote.end()
        end = _closing(text, start, quote["quote"])
        if end > start:
            # "name", "value" may also be any list; a name or a place that follows is no value.
            listed = not name.startswith("--") if sign.re is _FLAG else sign["listed"]
            value = text[start:end]
            if _is_secret_in_quotes(value, kind, name) and (not listed or looks_random(value)):
                yield Secret(start, end, kind)
            return
    # A line of an environment: what follows the sign is the value up to the next space.
    is_set = bool(_ENV.fullmatch(name)) and sign.group() == "="
    match = (_TO_SPACE if is_set else _PLAIN).match(text, start)
    if match is None:
        return
    value = match[0].rstrip(";,)&" if is_set else ".:*?")
    if sign.group()[-1] == "=" and not is_set:
        # The next parameter of an address.
        value = value.split("&")[0]
    inner = _INNER_NAME.match(value)
    if value[:1] in (":", "&") or (inner and kind_of_name(inner[1])):
        return
    follows = text[start + len(value) : start + len(value) + 1]
    if not is_set and follows and follows in "([{":
        return
    if is_set:
        accepted = _is_set_to_secret(value, kind, name)
    elif kind == PASSWORD and (name.startswith("--") if sign.re is _FLAG else sign["cell"] is None):
        name_start = sign.start() - len(name)
        at_line_start = text[max(0, name_start - 1) : name_start] in ("", "\n")
        accepted = _is_bare_password(text, start, value, sign, at_line_start=at_line_start)
    else:
        accepted = looks_random(value) and not is_placeholder(value)
    if accepted and MARKER not in value:
        yield Secret(start, start + len(value), kind)


def _closing(text: str, start: int, quote: str) -> int:
    """Return where a quoted value ends, or -1 when it does not on this line."""
    limit = start + LONGEST_VALUE
    end = text.find(quote, start, limit)
    # One more backslash than the opening has: a quotation mark inside the value.
    while end > start and text[end - 1] == "\\":
        end = text.find(quote, end + len(quote), limit)
    return -1 if end < 0 or "\n" in text[start:end] else end


def _is_secret_in_quotes(value: str, kind: str, name: str) -> bool:
    is_set = bool(_ENV.fullmatch(name))
    if MARKER in value or is_placeholder(value):
        return False
    if kind != PASSWORD:
        # `secret: "…"` names a stored secret as often as it holds one; `client_secret` holds it.
        is_sure = is_set or (kind == SECRET and not _KEY_OWNERS.isdisjoint(_words(name)[:-1]))
        return looks_random(value) or (is_sure and _is_set_to_secret(value, kind, name))
    if is_reference(value) or len(value) < SHORTEST_PASSWORD:
        return False
    if is_set:
        return True
    # A label has spaces, too: "Enter your password", "at least 8 characters".
    return " " not in value or bool(_DIGIT.search(value) and not _SENTENCE.fullmatch(value))


def _is_set_to_secret(value: str, kind: str, name: str) -> bool:
    """Return whether NAME=value, without a space, sets a secret."""
    if is_placeholder(value) or is_reference(value):
        return False
    if kind == PASSWORD:
        return len(value) >= SHORTEST_PASSWORD
    if value.isdigit() or len(value) < SHORTEST_TOKEN or " " in value:
        return False
    words = _words(name)
    # SORT_KEY and TENANT_KEY name no secret: the value must show it.
    is_weak = not _WEAK_WORDS.isdisjoint(words[-1:]) or (
        kind == KEY and _KEY_OWNERS.isdisjoint(words)
    )
    return looks_random(value) if is_weak else True


def _is_bare_password(
    text: str, start: int, value: str, sign: re.Match[str], *, at_line_start: bool
) -> bool:
    if is_placeholder(value) or is_reference(value):
        return False
    length = len(value)
    if sign.re is not _FLAG and sign["says"]:
        return length >= SHORTEST_SAID and bool(_DIGIT.search(value))
    if _DIGIT.search(value):
        return length >= SHORTEST_BARE
    if re.search(r"[^\w.\-]", value):
        return length > SHORTEST_BARE
    # A plain word: a type, a state or a variable, but where nothing else stands on the line.
    if length <= SHORTEST_BARE or "_" in value or not value.islower() or sign.re is _FLAG:
        return False
    indented = sign.group().strip() != ":" and sign.group().endswith(" ") and not at_line_start
    return bool(_LINE_END.match(text, start + length)) and not indented

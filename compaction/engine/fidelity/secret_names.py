"""Secrets known by the name before them: `MAILER_TOKEN=…`, `"password": "…"`, `api key: …`.

The name decides how much a value must look like a secret. After `DB_PASSWORD=` nearly anything is
one; after `token =` in a program most values are none, so only what a machine drew counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.extractive.sentences import word_set
from compaction.engine.fidelity.secret_shapes import places
from compaction.engine.fidelity.secret_values import (
    MARKER,
    MARKERS,
    Secret,
    is_placeholder,
    is_reference,
    looks_random,
)

PASSWORD, TOKEN, SECRET, KEY = "password", "token", "secret", "key"
LONGEST_NAME = 60
LONGEST_VALUE = 2000
LONGEST_MARKED_PASSWORD = 200
LONGEST_WORD_BEFORE = 24
SHORTEST_PASSWORD = 3
SHORTEST_BARE = 4
SHORTEST_SAID = 6
SHORTEST_TOKEN = 6
SHORTEST_LETTERS = 12

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
    "license bot cloudflare okta airtable"
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
# Before "password", these switch it off; not where a sign follows: "is password=…", "no token: …".
_UNLESS_SIGNED = word_set(
    "is has no without invalid wrong incorrect bad missing forgot forgotten reset change changed "
    "show hide require requires required needs use allow update enter check verify validate get "
    "set hash hashed each every"
)
# What may follow the word that names the secret, as in SECRET_KEY_BASE or API_TOKEN_PROD.
_AFTER = word_set(
    "prod production dev staging test live old new value base b64 base64 hex plain string raw "
    "default main us eu secondary"
)
_BOUNDARY = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAME = lazy_pattern(r"[A-Za-z0-9_.\-]{0,40}+")
_DIGIT = lazy_pattern(r"\d")
_OPEN, _VALUE_NAME = r"\\{0,8}[\"'`]?", r"\\{0,8}[\"']?[Vv]alue\\{0,8}[\"']?"
_BREAK = r"(?:\r?\n|\\{1,4}r\\{1,4}n|\\{1,4}n)"
# Compiled at once, as _FLAG: a match is asked which of the two it is one of.
_SIGN = re.compile(
    rf"(?P<close>{_OPEN})(?:"
    rf"(?P<below>\*{{0,2}}(?:[:=]|：|＝)\*{{0,2}}[ \t]{{0,20}}(?:{_BREAK}[ \t]{{0,40}}){{1,2}}"
    rf"(?:```[a-z]{{0,12}}{_BREAK}[ \t]{{0,20}})?)|"
    r"\]?\*{0,2}[ \t]{0,20}(?::[ \t]?[A-Za-z_][\w.\[\]|]{0,30}(?: \| None)? =(?!=)"
    r"|(?P<sign>=>|:=|={1,3}|:(?!:)|：|＝))[ \t]{0,20}\*{0,2}[ \t]{0,4}"
    r"|(?P<says> (?:is|was|ist|war|lautet|es|est)(?: now| set to)?:? {1,2}|[是为為は][:：]? ?)"
    rf"|(?P<pair>,?\s{{1,40}}{_VALUE_NAME}\s{{0,4}}[:=]\s{{0,8}})"
    r"|(?P<cell>[ \t]{0,20}\|[ \t]{0,4})"
    r"|(?P<listed>,[ \t]{0,4})(?=\\{0,8}[\"'])"
    r"|(?P<element>>))"
)
_FLAG = re.compile(r"(?:[ \t]{1,3}|\\{1,4}t)(?=[^\s-])")
_QUOTE = lazy_pattern(r"[bBrRuU]{0,2}(?P<quote>\\{0,8}[\"'`])")
_NOT_SPACE = r"[^\s\"'`\\\u2e80-\u9fff\uff00-\uffef\uac00-\ud7af]"
_NOT_MARKS = r"[^\s\"'`\\,;<>|()\[\]{}\u2e80-\u9fff\uff00-\uffef\uac00-\ud7af…“”‘’]"


def _run(letter: str) -> re.Pattern[str]:
    """Return the pattern of a value, with markers in it."""
    marker = MARKERS.pattern
    return lazy_pattern(
        f"{letter}{{0,{LONGEST_VALUE}}}+(?:(?:{marker}){{1,50}}+{letter}{{0,500}}+){{0,8}}+"
    )


_TO_SPACE, _PLAIN = _run(_NOT_SPACE), _run(_NOT_MARKS)
# A value that is over length goes whole.
_REST = {
    _TO_SPACE: lazy_pattern(f"(?:{MARKERS.pattern}|{_NOT_SPACE})*+"),
    _PLAIN: lazy_pattern(f"(?:{MARKERS.pattern}|{_NOT_MARKS})*+"),
}
_ENV = lazy_pattern(r"[A-Z][A-Z0-9_]*")
_SENTENCE = lazy_pattern(
    r"[A-Z][a-z]+ .*|.*[.!?:]|.*\b(?i:your|the|is|must|password|enter|for|to|characters)\b.*"
)
# Nothing else on the line, or the next pair of a connection string.
_LINE_END = lazy_pattern(r"[ \t\r]*(?:\n|\\n|$|#|//)|[;&][A-Za-z ]{1,40}=")
_INNER_NAME = lazy_pattern(r"([A-Za-z_.-]{2,40})[=:]")
_NEXT_PAIR = lazy_pattern(r"[,;&|][A-Za-z_][\w.-]{0,40}[=:]")
# No program writes on right after a bracket, or has such a mark inside a name.
_GOES_ON = lazy_pattern(
    r"[^,;|()\[\]{}<>]{0,200}(?<=[A-Za-z0-9])[(\[][^()\[\]{}]{0,100}[)\]][A-Za-z0-9]"
    r"|\[[^\[\]]{0,40}\][A-Za-z0-9]"
)
_MARKED_HEAD = lazy_pattern(r"[^,;|()\[\]{}<>]{0,200}?[A-Za-z0-9][@!#%^~]")
_ITS_BRACKET = lazy_pattern(r"^\[[^\[\]]{0,40}\]")
_OTHER_LINE = lazy_pattern(r"[\w.-]{1,40}[=:][^=]")
_ALONE = lazy_pattern(r"[ \t\r]*(?:\n|\\|[\"'`]|$)")
_TICKET = lazy_pattern(r"#\d+|[A-Z]{2,10}-\d+")


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
    before = _word_before(text, start)
    is_signed = sign.re is _SIGN and bool(sign["sign"] or sign["below"])
    is_doubted = is_signed and before in _UNLESS_SIGNED
    kind = kind_of_name(name, "" if is_doubted else before)
    if not kind or not _may_stand_between(text, sign, start, kind):
        return
    for found in _value_after(text, sign, name, kind):
        if not is_doubted or _convinces(MARKERS.sub("", text[found.start : found.end]), sign):
            yield found


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
        if "\\" in sign.group():
            # `C:\\password\\test1` is no tab.
            return bool(_ENV.fullmatch(text, start, sign.start()))
        # "the password hunter22": only a value that no word can be is taken without a sign.
        return kind == PASSWORD or "\t" in sign.group() or text.startswith("--", start)
    if sign["element"]:
        return text[start - 1 : start] == "<" and text.find("</", sign.end(), sign.end() + 200) > 0
    if sign["cell"]:
        line = text.rfind("\n", max(0, start - LONGEST_NAME), start) + 1
        return text[line:start].lstrip().startswith("|")
    return not sign["listed"] or bool(sign["close"])


def _convinces(value: str, sign: re.Match[str]) -> bool:
    """Return whether a value is a secret even behind "no password" or "reset password"."""
    if sign.group() == "=":
        return True
    is_ticket = bool(_TICKET.fullmatch(value))
    return len(value) >= SHORTEST_SAID and bool(_DIGIT.search(value)) and not is_ticket


def _value_after(text: str, sign: re.Match[str], name: str, kind: str) -> Iterator[Secret]:
    start = sign.end()
    quote = _QUOTE.match(text, start)
    if quote:
        start = quote.end()
        end = _closing(text, start, quote["quote"])
        if end > start:
            # "name", "value" may also be any list; a name or a place that follows is no value.
            is_flag = sign.re is _FLAG
            listed = not name.startswith("--") if is_flag else sign["listed"] or sign["below"]
            value = MARKERS.sub("", text[start:end])
            if _is_secret_in_quotes(value, kind, name) and (not listed or looks_random(value)):
                yield Secret(start, end, kind)
            return
    end = _end_of_bare(text, sign, name, kind)
    if end > start:
        yield Secret(start, end, kind)


def _end_of_bare(text: str, sign: re.Match[str], name: str, kind: str) -> int:
    """Return where the secret without quotes that follows a sign ends; -1 when it is none."""
    start = sign.end()
    if sign.re is _SIGN and sign["below"]:
        return _end_of_line_below(text, sign, name, kind)
    # A line of an environment: what follows the sign is the value up to the next space.
    is_set = bool(_ENV.fullmatch(name)) and sign.group() == "="
    pattern = _TO_SPACE if is_set else _PLAIN
    run = pattern.match(text, start)
    if run is None:
        return -1
    stopped_at = text[run.end() : run.end() + 1]
    if stopped_at and stopped_at in ",;|()[]{}<>" and kind == PASSWORD and sign.re is _SIGN:
        end = _end_of_marked_password(text, start) if sign["sign"] or sign["says"] else -1
        if end > start:
            return end
    if run.end() == start:
        return -1
    written = run[0].rstrip(";,)&" if is_set else ".:*?")
    if sign.group()[-1] == "=" and not is_set:
        # The next parameter of an address.
        written = written.split("&")[0]
    end = start + len(written)
    value = MARKERS.sub("", written)
    inner = _INNER_NAME.match(value)
    if value[:1] in ("", ":", "&") or (inner and kind_of_name(inner[1])):
        return -1
    follows = text[end : end + 1]
    if not is_set and follows and follows in "([{" and not text.startswith(MARKER, end):
        return -1
    if is_set:
        accepted = _is_set_to_secret(value, kind, name)
    elif kind == PASSWORD and (name.startswith("--") if sign.re is _FLAG else sign["cell"] is None):
        accepted = _is_bare_password(text, end, value, sign, _starts_line(text, sign, name))
    else:
        accepted = looks_random(value) and not is_placeholder(value)
        if not accepted and sign.re is _SIGN and sign["sign"]:
            accepted = _is_word_set(text, end, value, kind, name)
    if not accepted:
        return -1
    rest = _REST[pattern].match(text, end) if end == run.end() else None
    return rest.end() if rest else end


def _starts_line(text: str, sign: re.Match[str], name: str) -> bool:
    start = sign.start() - len(name)
    return text[max(0, start - 1) : start] in ("", "\n")


def _is_word_set(text: str, end: int, value: str, kind: str, name: str) -> bool:
    """Return whether `API_KEY = letters` sets a secret: a name in capitals, alone on its line."""
    is_word = len(value) >= SHORTEST_LETTERS and value.isalpha() and value.islower()
    if not is_word or not _ENV.fullmatch(name) or not _LINE_END.match(text, end):
        return False
    return _is_set_to_secret(value, kind, name)


def _end_of_marked_password(text: str, start: int) -> int:
    """Return where `p(4)ss,w0rd!` ends, a password no program could be; -1 where none starts."""
    run = _TO_SPACE.match(text, start, start + LONGEST_MARKED_PASSWORD)
    if run is None or len(run[0]) == LONGEST_MARKED_PASSWORD:
        return -1
    pair = _NEXT_PAIR.search(run[0])
    written = run[0][: pair.start()] if pair else run[0]
    value = MARKERS.sub("", written)
    is_marked = bool(_GOES_ON.match(value) or _MARKED_HEAD.match(value))
    if not is_marked or len(value) < SHORTEST_SAID or not _DIGIT.search(value):
        return -1
    head = _PLAIN.match(value)
    inside = _ITS_BRACKET.sub("", value)
    if is_placeholder(inside) or is_reference(inside) or (head and is_reference(head[0])):
        return -1
    is_balanced = all(written.count(a) == written.count(b) for a, b in ("()", "[]", "{}"))
    return start + len(written.rstrip(".,;:*?" if is_balanced else ".,;:*?)]}>"))


def _end_of_line_below(text: str, sign: re.Match[str], name: str, kind: str) -> int:
    """Return where a value ends that stands alone on the line after its name; -1 for none."""
    run = _PLAIN.match(text, sign.end())
    if run is None or not _ALONE.match(text, run.end()):
        return -1
    value = MARKERS.sub("", run[0])
    if is_placeholder(value) or is_reference(value) or _OTHER_LINE.match(value):
        return -1
    is_set = kind == PASSWORD and bool(_ENV.fullmatch(name)) and "=" in sign.group()
    is_password = is_set and len(value) >= SHORTEST_SAID and bool(_DIGIT.search(value))
    return run.end() if is_password or looks_random(value) else -1


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
    if is_placeholder(value):
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
    text: str, end: int, value: str, sign: re.Match[str], at_line_start: bool
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
    return bool(_LINE_END.match(text, end)) and not indented

"""Secrets that a mark inside them gives away, or the command or header that they stand in.

A token of three parts, the address of a webhook, a cookie, a password on a command line: what tells
them is not how they begin. As with other shapes, nothing is matched where the mark does not stand.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from chatapp.messages.patterns import lazy_pattern
from compaction.engine.fidelity.secret_shapes import starts_piece
from compaction.engine.fidelity.secret_values import (
    MARKERS,
    Secret,
    is_placeholder,
    looks_random,
    reads_as_words,
)

API_KEY, WEBHOOK, COOKIE, PASSWORD = "api-key", "webhook", "cookie", "password"
LONGEST_PIECE = 1_000
"""Characters behind a mark that a pattern may look at."""

_ENDS = r"(?![A-Za-z0-9_~-])"
# In quotes, and closed by the same ones: JSON has quotes behind a bare `-p` as well.
_QUOTED = r"[^\s\"',:}\]][^\s\"']{2,99}(?=\1)"
# Without quotes a word of a sentence may stand there: a digit, a sign or the command behind tells.
_SSH_PASSWORD = (
    rf"([\"'])?((?(1){_QUOTED}|"
    r"(?!(?:over|before|without|behind|through|using|when|instead)\s)"
    r"(?=[^\s\"'`]{0,99}(?:[0-9@#$%^&*+=~]|![^\s\"'`])"
    r"|[^\s\"'`]{1,100}\s{1,4}(?:ssh|scp|sftp|rsync)\b"
    r"(?!\s{1,4}(?:is|are|was|and|or|keys?|in|to|for|with)\b))[^\s\"'`]{3,100}+))"
)
_GAP = r"(?:[ \t]|\\\n){1,6}"
_ARGUMENT = r"[^\s;|&`-][^\s;|&`]{0,80}"
_MYSQL_OPTIONS = (
    rf"(?:{_GAP}-[^\s;|&`]{{1,80}}(?:{_GAP}{_ARGUMENT})?){{0,8}}?(?:{_GAP}{_ARGUMENT})?{_GAP}"
)
# Ports and ranges of them are no passwords, nor is the rest of an option's name.
_MYSQL_PASSWORD = (
    rf"(?!(?:ort|rotocol)\b)([\"'])?((?(1){_QUOTED}|"
    r"(?!\d+(?:[:.,-]\d+)*(?:/(?:tcp|udp))?(?:[\s;|&`.,)\"']|$))"
    r"(?=[^\s\"']{0,60}\d)[^\s\"';|&`]{4,100}+))"
)
# What stands before a command, and not before a word of a sentence or the name of something.
_COMMAND_PLACE = lazy_pattern(
    r"(?:^|[\n$#%>|;&`\"'(]|\\n|\bsudo|\bexec(?:[ \t]+-[\w-]{1,20}){0,4}[ \t]+[\w.-]{1,64})"
    r"[ \t]{0,8}(?:[\w.-]{0,40}/){0,6}$"
)
_LOGS_IN = lazy_pattern(r"\s(?:-u|--user)[\s=\w]")
_PLACE = 120
"""Characters before a command that may tell that it is one."""
# The mark, how far before it the secret begins, its kind, and its pattern; what is hidden is
# the group, where there is one: of an address, who reads on should see whose it is.
_MARKED: tuple[tuple[str, int, str, re.Pattern[str]], ...] = tuple(
    (mark, before, kind, lazy_pattern(pattern))
    for mark, before, kind, pattern in (
        # A client's secret of the directory of Azure.
        ("q~", 4, API_KEY, rf"[A-Za-z0-9_~.-]{{3}}[78]Q~[A-Za-z0-9_~.-]{{31,34}}{_ENDS}"),
        (".atlasv1.", 14, API_KEY, r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,90}+"),
        ("discord", 0, WEBHOOK, r"discord(?:app)?\.com/api(?:/v\d+)?/webhooks/\d{15,20}/"
         r"([A-Za-z0-9_-]{50,90}+)"),
        ("webhook.office.com/", 0, WEBHOOK, r"webhook\.office\.com/"
         r"(webhookb?2?/[^\s\"'<>)]{40,400}+)"),
        ("sig=", 0, API_KEY, r"(?<![A-Za-z0-9_])sig=([A-Za-z0-9%+/_-]{40,120}+)"),
        ("sshpass", 0, PASSWORD, rf"sshpass\s{{1,4}}-p\s{{0,4}}{_SSH_PASSWORD}"),
        ("mysql", 0, PASSWORD, rf"mysql(?:dump|admin|import)?{_MYSQL_OPTIONS}-p{_MYSQL_PASSWORD}"),
        ("wifi:", 0, PASSWORD, r"WIFI:(?:[A-Z]\w?:(?:\\.|[^;\\\n]){0,60}+;){0,5}"
         r"P:(?! )((?:\\.|[^;\\\n]){3,80}+);"),
    )
)  # fmt: skip
# Without a mark of their own: two letters, or a number in base64, and a length that no word has.
_SID = lazy_pattern(r"(?:AC|SK)[0-9a-f]{32}(?![A-Za-z0-9_])")
_NUMBERED = lazy_pattern(r"[012]/\d{16}:[0-9a-f]{32}(?![A-Za-z0-9_])")
_BOT = lazy_pattern(r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}+")
_COOKIES = lazy_pattern(r"cookie[\"']?\s{0,2}:\s{0,2}[\"']?([^\n]{1,4000})", re.IGNORECASE)
_PAIR = lazy_pattern(r"(?<![^\s;\"'])[A-Za-z0-9_.-]{1,64}=([^;\s\"',\\]{8,4000}+)")


def secrets_by_mark(text: str, low: str) -> Iterator[Secret]:
    """Return the secrets that a mark gives away; `low` is the text in small letters."""
    for mark, before, kind, pattern in _MARKED:
        at = low.find(mark)
        while at >= 0:
            done = at + len(mark)
            match = pattern.match(text, max(0, at - before), at + LONGEST_PIECE)
            if match and at < match.end() and starts_piece(text, match.start()):
                group = pattern.groups
                if _is_secret(match[group], kind) and (mark != "mysql" or _is_run(match)):
                    yield Secret(*match.span(group), kind)
                done = max(done, match.end())
            at = low.find(mark, done)
    for mark, shape in ((":", _NUMBERED), (".", _BOT), ("", _SID)):
        for match in shape.finditer(text) if mark in text else ():
            is_key = shape is not _BOT or _is_number(match[0].split(".")[0])
            if is_key and starts_piece(text, match.start()):
                yield Secret(*match.span(), API_KEY)
    if "cookie" in low:
        yield from _cookies(text)


def _is_secret(value: str, kind: str) -> bool:
    value = MARKERS.sub("", value)
    return not is_placeholder(value) and (kind == PASSWORD or not reads_as_words(value))


def _is_run(command: re.Match[str]) -> bool:
    """Return whether what stands there is run, and not only spoken of: by its place or options."""
    text, at = command.string, command.start()
    start = max(0, at - _PLACE)
    # The beginning of a cut is no beginning of a line.
    before = ("" if start == 0 else "x") + text[start:at]
    return bool(_COMMAND_PLACE.search(before) or _LOGS_IN.search(command[0]))


def _cookies(text: str) -> Iterator[Secret]:
    """Return the values of cookies that a machine drew."""
    for header in _COOKIES.finditer(text):
        for pair in _PAIR.finditer(text, *header.span(1)):
            if looks_random(MARKERS.sub("", pair[1])) and _is_secret(pair[1], COOKIE):
                yield Secret(*pair.span(1), COOKIE)


def _is_number(value: str) -> bool:
    """Return whether a value is a number in base64, as the id of a bot is."""
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).isdigit()
    except (binascii.Error, ValueError):
        return False

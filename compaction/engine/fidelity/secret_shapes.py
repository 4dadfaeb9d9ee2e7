"""Secrets that are known by their own shape: keys of providers, tokens, private keys, cards.

Each shape has an anchor, a few small letters that it cannot be without. Anchors are looked for with
`str.find`, and only what stands at one is matched: text without any costs next to nothing, and each
pattern is bounded. Account numbers (IBAN) stay: people give them to be paid, and they open nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from compaction.engine.fidelity.secret_values import (
    MARKERS,
    Secret,
    is_placeholder,
    looks_random,
    reads_as_words,
)

API_KEY, PRIVATE_KEY, URL_PASSWORD, CARD = "api-key", "private-key", "url-password", "card"
BEARER, BASIC = "bearer", "basic-auth"

LONGEST_PRIVATE_KEY = 20_000
CARD_CONTEXT = 40
LONGEST_COMMAND = 400
SHORTEST_KEY_RUN = 16

_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("sk-", API_KEY, r"sk-[A-Za-z0-9_-]{16,400}+"),
    ("sk_live_", "stripe-key", r"sk_live_[A-Za-z0-9]{8,250}+"),
    ("sk_test_", "stripe-key", r"sk_test_[A-Za-z0-9]{8,250}+"),
    ("rk_live_", "stripe-key", r"rk_live_[A-Za-z0-9]{8,250}+"),
    ("whsec_", "stripe-key", r"whsec_[A-Za-z0-9+/=]{16,250}+"),
    ("ghp_", "github-token", r"ghp_[A-Za-z0-9]{16,255}+"),
    ("gho_", "github-token", r"gho_[A-Za-z0-9]{16,255}+"),
    ("ghu_", "github-token", r"ghu_[A-Za-z0-9]{16,255}+"),
    ("ghs_", "github-token", r"ghs_[A-Za-z0-9]{16,255}+"),
    ("ghr_", "github-token", r"ghr_[A-Za-z0-9]{16,255}+"),
    ("github_pat_", "github-token", r"github_pat_[A-Za-z0-9_]{16,255}+"),
    ("glpat-", "gitlab-token", r"glpat-[A-Za-z0-9_.-]{16,255}+"),
    ("gldt-", "gitlab-token", r"gldt-[A-Za-z0-9_-]{16,255}+"),
    ("glrt-", "gitlab-token", r"glrt-[A-Za-z0-9_-]{16,255}+"),
    ("xox", "slack-token", r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,300}+"),
    ("xapp-", "slack-token", r"xapp-\d-[A-Za-z0-9-]{10,300}+"),
    ("hooks.slack.com/", "slack-token", r"hooks\.slack\.com/services/[A-Za-z0-9/_-]{20,120}+"),
    ("akia", "aws-key", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("asia", "aws-key", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("aiza", "google-key", r"AIza[A-Za-z0-9_-]{30,45}+"),
    ("ya29.", "google-key", r"ya29\.[A-Za-z0-9_-]{20,500}+"),
    (
        "eyj",
        "jwt",
        r"eyJ[A-Za-z0-9_-]{8,4000}+\.[A-Za-z0-9_-]{8,8000}+(?:\.[A-Za-z0-9_-]{0,2000}+)?",
    ),
    ("npm_", API_KEY, r"npm_[A-Za-z0-9]{30,60}+"),
    ("pypi-", API_KEY, r"pypi-[A-Za-z0-9_-]{40,400}+"),
    ("hf_", API_KEY, r"hf_[A-Za-z0-9]{30,60}+"),
    ("sg.", API_KEY, r"SG\.[A-Za-z0-9_-]{16,40}+\.[A-Za-z0-9_-]{16,80}+"),
    ("dop_v1_", API_KEY, r"dop_v1_[a-f0-9]{40,80}+"),
    ("shpat_", API_KEY, r"shpat_[A-Fa-f0-9]{24,64}+"),
    ("gsk_", API_KEY, r"gsk_[A-Za-z0-9]{30,120}+"),
    ("xai-", API_KEY, r"xai-[A-Za-z0-9]{40,120}+"),
    ("nvapi-", API_KEY, r"nvapi-[A-Za-z0-9_-]{30,120}+"),
    ("pplx-", API_KEY, r"pplx-[A-Za-z0-9]{30,120}+"),
    ("glsa_", API_KEY, r"glsa_[A-Za-z0-9_]{30,120}+"),
    ("dckr_pat_", API_KEY, r"dckr_pat_[A-Za-z0-9_-]{20,60}+"),
    ("hvs.", API_KEY, r"hvs\.[A-Za-z0-9_-]{20,200}+"),
    ("r8_", API_KEY, r"r8_[A-Za-z0-9]{30,60}+"),
    ("tgp_v1_", API_KEY, r"tgp_v1_[A-Za-z0-9_-]{30,80}+"),
    ("csk-", API_KEY, r"csk-[a-z0-9]{40,80}+"),
    ("tvly-", API_KEY, r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{24,60}+"),
    ("lsv2_", API_KEY, r"lsv2_(?:pt|sk)_[a-f0-9]{24,40}+(?:_[a-f0-9]{8,12}+)?"),
    ("pcsk_", API_KEY, r"pcsk_[A-Za-z0-9_]{44,90}+"),
    ("sk_", API_KEY, r"sk_[a-f0-9]{40,64}+"),
    ("fc-", API_KEY, r"fc-[a-f0-9]{32}(?![A-Za-z0-9])"),
    ("fw_", API_KEY, r"fw_(?=[A-Za-z]{0,20}\d)[A-Za-z0-9]{20,40}+"),
    ("e2b_", API_KEY, r"e2b_[a-f0-9]{32,60}+"),
    ("jina_", API_KEY, r"jina_[A-Za-z0-9_-]{40,80}+"),
    ("key_", API_KEY, r"key_[a-f0-9]{48,80}+"),
    ("key-", API_KEY, r"key-[a-f0-9]{32}(?![A-Za-z0-9])"),
    ("pa-", API_KEY, r"pa-[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    ("absk", "aws-key", r"ABSK[A-Za-z0-9+/]{60,200}+={0,2}"),
    ("aq.ab", "google-key", r"AQ\.Ab[A-Za-z0-9_-]{30,80}+"),
    ("fm2_", API_KEY, r"fm2_[A-Za-z0-9+/=_-]{40,800}+"),
    ("vercel_blob_rw_", API_KEY, r"vercel_blob_rw_[A-Za-z0-9_]{30,80}+"),
    ("nfp_", API_KEY, r"nfp_[A-Za-z0-9]{30,60}+"),
    ("sbp_", API_KEY, r"sbp_[a-f0-9]{32,60}+"),
    ("sb_secret_", API_KEY, r"sb_secret_[A-Za-z0-9_-]{20,60}+"),
    ("napi_", API_KEY, r"napi_[a-z0-9]{40,80}+"),
    ("pscale_", API_KEY, r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,80}+"),
    ("dapi", API_KEY, r"dapi[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"),
    ("re_", API_KEY, r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,30}+"),
    ("dp.", API_KEY, r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,40}\.)?[A-Za-z0-9]{40,60}+"),
    ("lin_api_", API_KEY, r"lin_api_[A-Za-z0-9]{32,60}+"),
    ("ntn_", API_KEY, r"ntn_[A-Za-z0-9]{40,60}+"),
    ("figd_", API_KEY, r"figd_[A-Za-z0-9_-]{36,60}+"),
    ("eaaa", API_KEY, r"EAAA[A-Za-z0-9_-]{56,80}+"),
    ("nrak-", API_KEY, r"NRAK-[A-Z0-9]{27}(?![A-Za-z0-9])"),
    ("sntry", API_KEY, r"sntry[su]_[A-Za-z0-9+/=_-]{60,400}+"),
    ("phx_", API_KEY, r"phx_[A-Za-z0-9]{40,60}+"),
    ("tskey-", API_KEY, r"tskey-[a-z]{3,12}-[A-Za-z0-9]{8,30}+(?:-[A-Za-z0-9]{16,60}+)?"),
    ("hrku-", API_KEY, r"HRKU-[A-Za-z0-9_-]{30,80}+"),
    ("atatt3", API_KEY, r"ATATT3[A-Za-z0-9_=-]{80,300}+"),
    ("atbb", API_KEY, r"ATBB[A-Za-z0-9]{28,40}+"),
    ("pmak-", API_KEY, r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("rnd_", API_KEY, r"rnd_[A-Za-z0-9]{28,40}+"),
    ("pat", API_KEY, r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}(?![A-Za-z0-9])"),
    ("pat-", API_KEY, r"pat-[a-z]{2}\d-[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}"),
    ("ak-", API_KEY, r"ak-(?=[A-Za-z]{0,21}\d)[A-Za-z0-9]{22}(?![A-Za-z0-9_-])"),
    ("as-", API_KEY, r"as-(?=[A-Za-z]{0,21}\d)[A-Za-z0-9]{22}(?![A-Za-z0-9_-])"),
    ("scw", API_KEY, r"SCW(?=[A-Z]{0,16}\d)[A-Z0-9]{17}(?![A-Za-z0-9])"),
    ("4b1d", API_KEY, r"4b1d(?=[a-z0-9]{0,37}[A-Z])[A-Za-z0-9]{38}(?![A-Za-z0-9])"),
    ("secret_", API_KEY, r"secret_(?=[A-Za-z]{0,42}\d)[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    ("pul-", API_KEY, r"pul-[a-f0-9]{40}(?![A-Za-z0-9])"),
    ("fo1_", API_KEY, r"fo1_[A-Za-z0-9_-]{40,60}+"),
    ("sq0", API_KEY, r"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,60}+"),
    ("rubygems_", API_KEY, r"rubygems_[a-f0-9]{48}(?![A-Za-z0-9])"),
    ("sl.", API_KEY, r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,2000}+"),
    ("gocspx-", "google-key", r"GOCSPX-[A-Za-z0-9_-]{24,40}+"),
    ("snyk_", API_KEY, r"snyk_[A-Za-z0-9_.-]{36,120}+"),
    ("sq", API_KEY, r"sq[upa]_[a-f0-9]{40}(?![A-Za-z0-9])"),
    ("ccip", API_KEY, r"CCIP(?:AT|RJ)_[A-Za-z0-9]{20,24}_[a-f0-9]{40}"),
    ("bkua_", API_KEY, r"bkua_[a-f0-9]{40}(?![A-Za-z0-9])"),
    ("vc", API_KEY, r"vc[pakir]_[A-Za-z0-9]{24,80}+"),
    ("cfpat-", API_KEY, r"CFPAT-[A-Za-z0-9_-]{40,60}+"),
    ("dt0", API_KEY, r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("glc_", API_KEY, r"glc_[A-Za-z0-9+/=]{40,400}+"),
    ("cio", API_KEY, r"cio(?=[A-Za-z]{0,31}\d)[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("xkeysib-", API_KEY, r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    ("ez", API_KEY, r"EZ[AT]K[A-Za-z0-9]{54}(?![A-Za-z0-9])"),
    ("flwseck", API_KEY, r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,40}+(?:-X)?"),
    ("rzp_", API_KEY, r"rzp_(?:live|test)_[A-Za-z0-9]{14}(?![A-Za-z0-9])"),
    ("cflt", API_KEY, r"cflt(?=[A-Za-z]{0,40}\d)[A-Za-z0-9+/]{56,64}(?![A-Za-z0-9+/])"),
    # Those of Okta have no mark but the scheme of their header.
    ("ssws 00", API_KEY, r"SSWS 00(?=[A-Za-z_-]{0,39}\d)[A-Za-z0-9_-]{40}(?![A-Za-z0-9_-])"),
    ("age-secret-key-1", PRIVATE_KEY, r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}+"),
)
_PATTERNS = tuple((anchor, kind, re.compile(pattern)) for anchor, kind, pattern in _SHAPES)
_AWS_SECRET = re.compile(r"[\s,;:|\"']{1,6}([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])")
_PREFIX = re.compile(r"[A-Za-z0-9]{2,6}[-_.]|AKIA|ASIA|AIza")
_TELEGRAM = re.compile(r":(AA[A-Za-z0-9_-]{32,34})(?![A-Za-z0-9_-])")
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# A line of the key, with what quoting, diffs and numbered listings put before it.
_KEY_LINE = re.compile(
    r"(?:\\{1,4}[nrt]|[\s>+|\"',\\-]){0,60}+(?:\d{1,6}(?:→|\t|[:|] ?))?"
    r"(?:[A-Za-z0-9+/]{16,20000}+={0,2}|[A-Z][A-Za-z-]{2,20}: [^\n\\]{1,100})"
)
_KEY_REST = re.compile(r"(?:\\{1,4}[nr]|\n)[A-Za-z0-9+/]{1,63}={0,2}(?=\s|\\|[\"'`]|$)")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/]{16}")
_USERINFO = re.compile(
    r"://(?:(?P<user>[^\s:/?#@\"'<>`\\(){}\[\]]{0,100}+):(?P<password>[^\s/?\"'<>`\\]{2,200})@"
    r"|(?P<token>[A-Za-z0-9_-]{20,200}+)@)"
)
# What follows the colon is no port, so a slash belongs to the password.
_USERINFO_WITH_SLASH = re.compile(
    r"://[^\s:/?#@\"'<>`\\(){}\[\]]{1,100}+:(?!\d{1,5}[/?])"
    r"(?P<password>(?P<head>[^\s/?@\"'<>`\\]{1,100}+)[/?][^\s@\"'<>`\\]{0,200}+"
    r"(?:@[^\s/?@\"'<>`\\]{0,100}+(?=@)){0,3}+)@[\w\[]"
)
_SCHEME = re.compile(
    r"(?P<scheme>Bearer|bearer|BEARER)(?: |%20|\+)\s{0,3}(?:\[REDACTED(?::[a-z-]{1,20})?\]){0,20}+"
    r"(?P<value>[A-Za-z0-9._~+/=-]{6,40000}+)"
)
_BASIC = re.compile(
    r"(?:Basic|basic|BASIC)(?: |%20)\s{0,3}(?:\[REDACTED(?::[a-z-]{1,20})?\]){0,20}+"
    r"(?P<value>[A-Za-z0-9+/=_-]{6,20000}+)"
)
_HEADER = re.compile(r"authorization[\\\"'`\]]{0,6}\s{0,4}[:=,]\s{0,4}[\\\"'`]{0,4}$")
_OTHER_SCHEME = re.compile(
    r"[\\\"'`\]]{0,6}\s{0,4}[:=,]\s{0,4}[\\\"'`]{0,4}(?i:token|apikey|api-key|key|digest|negotiate)\s{1,3}"
    r"(?P<value>[A-Za-z0-9._~+/=-]{6,4000}+)"
)
_DIGIT = re.compile(r"\d")
_CURL_USER = re.compile(r" (?:-u|--user)[ =]?([\"']?)([^\s:\"']{1,64}):([^\s\"']{3,200})")
# Between the groups of a card number: spaces of any kind, or the same mark each time.
_SPACES = r"(?:[ \u00a0\u2007\u2009\u202f]|\\{1,4}u00a0){1,2}"
_CARD_START = re.compile(rf"(?:(?<!\d)|(?<=u00a0))\d{{4}}(?=\d{{9}}|(?:{_SPACES}|[-.])\d{{4}})")
_CARD_END = r"(?![A-Za-z0-9_]|\.\d)"
_CARD_LAYOUTS = (
    re.compile(r"(?<![.-])\d{13,19}(?![A-Za-z0-9_]|[.-]\d)"),
    *(
        re.compile(layout.replace("S", gap) + _CARD_END)
        for gap in (_SPACES, "-", r"\.")
        for layout in (
            r"\d{4}S\d{4}S\d{4}S\d{4}",
            r"\d{4}S\d{6}S\d{4,5}",
            r"\d{4}S\d{4}S\d{4}S\d{1,3}",
            r"\d{4}S\d{4}S\d{4}S\d{4}S\d{1,3}",
        )
    ),
)
_CARD_MARK = re.compile(r"\\{1,4}u00a0|\D")
_MARK_IN_FRONT = re.compile(r"\\{1,4}(?:u00a0|[nrt])$")
_CARD_BRANDS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"
    r"|3[47]\d{13}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[689]\d)\d{11}"
    r"|62\d{14,17}"
)
_CARD_WORDS = re.compile(
    r"card|visa|amex|american express|discover|karte|tarjeta|carte|carta|卡|カード|карт|카드"
)


def places(low: str, anchor: str) -> Iterator[int]:
    """Return where an anchor stands in a text of small letters."""
    at = low.find(anchor)
    while at >= 0:
        yield at
        at = low.find(anchor, at + len(anchor))


def secrets_by_shape(text: str, low: str) -> Iterator[Secret]:
    """Return the secrets whose own shape gives them away; `low` is the text in small letters."""
    for anchor, kind, pattern in _PATTERNS:
        if anchor in low:
            yield from _of_shape(text, low, anchor, kind, pattern)
    for anchor, finder in _FINDERS:
        if anchor in low:
            for at in places(low, anchor):
                yield from finder(text, low, at)
    yield from _cards(text, low)


def _of_shape(
    text: str, low: str, anchor: str, kind: str, pattern: re.Pattern[str]
) -> Iterator[Secret]:
    done = 0
    for at in places(low, anchor):
        match = pattern.match(text, at) if at >= done and starts_piece(text, at) else None
        if match is None:
            continue
        done = match.end()
        if _is_key(match[0], kind):
            yield Secret(at, done, kind)
            if kind == "aws-key" and (second := _AWS_SECRET.match(text, done)):
                yield Secret(*second.span(1), kind)


def starts_piece(text: str, at: int) -> bool:
    """Return whether a word can start here: no letter before, or one that is an escape's."""
    before = text[at - 1 : at]
    if not (before.isascii() and before.isalnum()):
        return True
    return before in "nrt" and text[at - 2 : at - 1] == "\\"


def _is_key(value: str, kind: str) -> bool:
    prefix = _PREFIX.match(value)
    body = value[prefix.end() if prefix else 0 :]
    if is_placeholder(body):
        return False
    if kind == API_KEY and value.startswith("sk-"):
        # Class names of style sheets begin so, too: words between hyphens.
        runs = re.findall(r"[A-Za-z0-9]+", body)
        return any(any(c.isdigit() for c in run) and len(run) > 5 for run in runs) or any(
            len(run) >= SHORTEST_KEY_RUN for run in runs
        )
    return kind not in (API_KEY, "google-key") or not reads_as_words(body)


def _private_key(text: str, low: str, at: int) -> Iterator[Secret]:
    begin = _BEGIN.match(text, at)
    if begin is None:
        return
    following = text.find("-----BEGIN", begin.end(), begin.end() + LONGEST_PRIVATE_KEY)
    limit = following if following >= 0 else begin.end() + LONGEST_PRIVATE_KEY
    end = _END.search(text, begin.end(), limit)
    if end and _KEY_BODY.search(text, begin.end(), end.start()):
        yield Secret(at, end.end(), PRIVATE_KEY)
    elif not end and (last := _end_of_cut_key(text, begin.end())) > begin.end():
        yield Secret(at, last, PRIVATE_KEY)


def _end_of_cut_key(text: str, at: int) -> int:
    """Return where the lines of a key without an end stop."""
    start = at
    while line := _KEY_LINE.match(text, at):
        at = line.end()
    rest = _KEY_REST.match(text, at) if at > start else None
    return rest.end() if rest else at


def _userinfo(text: str, low: str, at: int) -> Iterator[Secret]:
    match = _USERINFO.match(text, at)
    if match:
        group = "password" if match["token"] is None else "token"
        value = MARKERS.sub("", match[group])
        if not is_placeholder(value) and (group == "password" or looks_random(value)):
            yield Secret(*match.span(group), URL_PASSWORD)
    elif slashed := _USERINFO_WITH_SLASH.match(text, at):
        head, value = slashed["head"], MARKERS.sub("", slashed["password"])
        is_whole = "://" not in value and not is_placeholder(head) and not is_placeholder(value)
        if is_whole and _DIGIT.search(value):
            yield Secret(*slashed.span("password"), URL_PASSWORD)


def _bearer(text: str, low: str, at: int) -> Iterator[Secret]:
    match = _SCHEME.match(text, at)
    if match and not is_placeholder(match["value"]):
        value, start = match["value"].rstrip("."), match.start("value")
        if looks_random(value) or _HEADER.search(low, max(0, at - 30), at):
            yield Secret(start, start + len(value), BEARER)


def _basic(text: str, low: str, at: int) -> Iterator[Secret]:
    match = _BASIC.match(text, at)
    if match is None or is_placeholder(match["value"]):
        return
    if _has_colon(match["value"]) or _HEADER.search(low, max(0, at - 30), at):
        yield Secret(*match.span("value"), BASIC)


def _other_scheme(text: str, low: str, at: int) -> Iterator[Secret]:
    match = _OTHER_SCHEME.match(text, at + len("authorization"))
    if match and not is_placeholder(match["value"]):
        yield Secret(*match.span("value"), BEARER)


def _curl(text: str, low: str, at: int) -> Iterator[Secret]:
    line = text.find("\n", at, at + LONGEST_COMMAND)
    match = _CURL_USER.search(text, at, line if line >= 0 else at + LONGEST_COMMAND)
    if match and not is_placeholder(MARKERS.sub("", match[3])):
        yield Secret(*match.span(3), BASIC)


def _telegram(text: str, low: str, at: int) -> Iterator[Secret]:
    match = _TELEGRAM.match(text, at)
    if match and at >= 8 and text[at - 8 : at].isdigit():
        yield Secret(*match.span(1), API_KEY)


_FINDERS = (
    ("-----begin", _private_key),
    ("://", _userinfo),
    ("bearer", _bearer),
    ("basic", _basic),
    ("authorization", _other_scheme),
    ("curl ", _curl),
    (":aa", _telegram),
)


def _has_colon(value: str) -> bool:
    """Return whether a value is `user:password` in base64."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode("ascii").isprintable()


def _cards(text: str, low: str) -> Iterator[Secret]:
    """Return the card numbers; other digits may stand beside one, so each group may start it."""
    for start in _CARD_START.finditer(text):
        at = start.start()
        if not _starts_number(text, at):
            continue
        found = [match for one in _CARD_LAYOUTS if (match := one.match(text, at))]
        ends = [match.end() for match in found if _is_card(match, low)]
        if ends:
            yield Secret(at, max(ends), CARD)


def _starts_number(text: str, at: int) -> bool:
    before = text[at - 1 : at]
    if before == "." and text[max(0, at - 2) : at - 1].isdigit():
        # A fraction, but where the groups of the number have full stops between them.
        return text[at + 4 : at + 5] == "."
    if not before.isascii() or not (before.isalnum() or before == "_"):
        return True
    return bool(_MARK_IN_FRONT.search(text, max(0, at - 9), at))


def _is_card(match: re.Match[str], low: str) -> bool:
    digits = _CARD_MARK.sub("", match[0])
    if not (_CARD_BRANDS.fullmatch(digits) and _passes_luhn(digits)):
        return False
    # One number in ten passes the checksum: what has a rare length must be called a card.
    is_common = len(digits) in (15, 16) or len(match[0]) - len(digits) in (2, 3, 4)
    before = max(0, match.start() - CARD_CONTEXT)
    return is_common or bool(_CARD_WORDS.search(low, before, match.start()))


def _passes_luhn(digits: str) -> bool:
    doubled = [int(one) for one in reversed(digits)]
    doubled[1::2] = [sum(divmod(2 * one, 10)) for one in doubled[1::2]]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1

"""Secrets are hidden before anybody summarises them; whatever only looks like one stays."""

from __future__ import annotations

import json
import os
import random
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.fidelity.redaction import redact, redact_items
from compaction.engine.types import Item, ToolCall

SEED = int(os.environ.get("REDACTION_SEED", "20261128"))
SECRETS_PER_PAIR = 4

LETTERS = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
BASE64 = LETTERS + "-_"

# What begins so is a secret wherever it stands.
KNOWN_SHAPES = {
    "openai": ("sk-proj-", LETTERS, 40),
    "anthropic": ("sk-ant-api03-", BASE64, 80),
    "plain sk": ("sk-", LETTERS, 48),
    "github": ("ghp_", LETTERS, 36),
    "github fine": ("github_pat_", LETTERS, 60),
    "gitlab": ("glpat-", BASE64, 20),
    "slack bot": ("xoxb-", string.digits, 24),
    "slack app": ("xapp-1-", UPPER, 30),
    "aws": ("AKIA", UPPER, 16),
    "aws short-lived": ("ASIA", UPPER, 16),
    "google": ("AIza", BASE64, 35),
    "stripe": ("sk_live_", LETTERS, 24),
    "stripe restricted": ("rk_live_", LETTERS, 24),
    "npm": ("npm_", LETTERS, 36),
    "hugging face": ("hf_", LETTERS, 34),
    "groq": ("gsk_", LETTERS, 52),
    "shopify": ("shpat_", HEX, 32),
    "replicate": ("r8_", LETTERS, 37),
    "together": ("tgp_v1_", BASE64, 43),
    "cerebras": ("csk-", string.ascii_lowercase + string.digits, 48),
    "tavily": ("tvly-dev-", LETTERS, 32),
    "langsmith": ("lsv2_pt_", HEX, 32),
    "pinecone": ("pcsk_A1b2C3_", LETTERS, 63),
    "elevenlabs": ("sk_", HEX, 48),
    "firecrawl": ("fc-", HEX, 32),
    "e2b": ("e2b_", HEX, 40),
    "jina": ("jina_", LETTERS, 60),
    "bedrock": ("ABSK", LETTERS, 120),
    "google, new": ("AQ.Ab8RN6", BASE64, 44),
    "netlify": ("nfp_", LETTERS, 36),
    "supabase": ("sb_secret_", LETTERS, 22),
    "neon": ("napi_", string.ascii_lowercase + string.digits, 64),
    "planetscale": ("pscale_tkn_", LETTERS, 43),
    "modal": ("as-", LETTERS, 22),
    "scaleway": ("SCW", UPPER, 17),
    "clickhouse": ("4b1d", LETTERS, 38),
    "notion, old": ("secret_", LETTERS, 43),
    "pulumi": ("pul-", HEX, 40),
    "google client": ("GOCSPX-", BASE64, 28),
    "snyk": ("snyk_", LETTERS, 40),
    "sonar": ("squ_", HEX, 40),
    "buildkite": ("bkua_", HEX, 40),
    "rubygems": ("rubygems_", HEX, 48),
    "contentful": ("CFPAT-", BASE64, 43),
    "square": ("sq0atp-", BASE64, 22),
    "twilio": ("SK", HEX, 32),
    "terraform": ("NPloWRlOTcEokd.atlasv1.", BASE64, 67),
    "airtable": ("pat7sjEbhQN9CpscY.", HEX, 64),
    "azure directory": ("qev8Q~", LETTERS, 34),
    "discord bot": ("NjMzNjI5NDQ3Njc4MzIzNTQ5.nVLe3l.", BASE64, 38),
    "databricks": ("dapi", HEX, 32),
    "mailgun": ("key-", HEX, 32),
    "resend": ("re_4Ghk29xw_", LETTERS, 24),
    "doppler": ("dp.pt.", LETTERS, 43),
    "linear": ("lin_api_", LETTERS, 40),
    "notion": ("ntn_", LETTERS, 46),
    "figma": ("figd_", LETTERS, 40),
    "new relic": ("NRAK-", UPPER, 27),
    "sentry": ("sntrys_", LETTERS, 100),
    "tailscale": ("tskey-auth-", LETTERS, 16),
    "atlassian": ("ATATT3xFfGF0", LETTERS, 180),
    "render": ("rnd_", LETTERS, 32),
}
# What only the name before it gives away.
NAMED_SHAPES = {
    "hex": ("", HEX, 32),
    "base62": ("", LETTERS, 24),
    "long base64": ("", LETTERS + "+/", 40),
    "with a prefix": ("tok-live-", string.digits, 22),
    "parts": ("a1b2-", HEX, 20),
}
BARE_CARRIERS = {
    "prose": "Please use {} for the next deploy.",
    "Chinese prose": "请把{}放进配置里，然后重启。",
    "log line": "2026-11-28 10:11:12 INFO client[31]: sent {} to upstream",
    "quoted": "the answer was '{}'",
    "list": "- first: {}\n- second: nothing",
    "code": 'client = Client("{}")',
    "address": "https://api.example.com/v1?x=1&k={}&y=2",
    "escaped line": "first\\n{}\\nlast",
}
NAMED_CARRIERS = {
    "env file": "HOST=mx.example\nMAILER_TOKEN={}\nPORT=25",
    "export": "export DEPLOY_KEY={}; make",
    "export, quoted": "export GH_TOKEN='{}'",
    "JSON": '{{"user": "bob", "api_key": "{}", "n": 3}}',
    "escaped JSON": '{{\\"api_key\\": \\"{}\\", \\"n\\": 3}}',
    "twice escaped JSON": '{{\\\\\\"secret_key\\\\\\": \\\\\\"{}\\\\\\"}}',
    "YAML": "service:\n  client_secret: {}\n  port: 80",
    "YAML of a container": "- name: API_TOKEN\n  value: {}",
    "header": "Authorization: Bearer {}",
    "header in code": 'headers={{"Authorization": "Bearer {}"}}',
    "own header": "-H 'X-Api-Key: {}' https://example.com",
    "flag": "tool --api-key {} --verbose",
    "address": "GET /v1/users?access_token={}&page=2",
    "log line": "DEBUG auth: access_token={} expires=3600",
    "prose": "My API key is {} and it works.",
    "Markdown": "**API key:** {}",
    "table": "| API key | {} |",
    "code": "client.auth_token = '{}'",
    "Chinese prose": "我的密钥是{}，请保密。",
    "connection string": "Endpoint=sb://x.example;SharedAccessKey={};Name=x",
    "XML": "<apiKey>{}</apiKey>",
}
PASSWORDS = (
    "hunter2",
    "Tr0ub4dor-3",
    "correct-horse-battery",
    "s3cr3t!pw",
    "Passw0rd#9",
    "20261128",
)
PASSWORD_CARRIERS = {
    "env file": "USER=bob\nDB_PASSWORD={}\nX=1",
    "JSON": '{{"password": "{}", "n": 1}}',
    "YAML": "login: bob\npassword: {}\nport: 1",
    "passwd": "passwd: {}",
    "ini": "[db]\npassword = {}\n",
    "code": 'connect(user="bob", password="{}")',
    "address": "postgres://bob:{}@db.example/app",
    "flag": "mysql --password '{}' -u bob",
    "curl": "curl -u bob:{} https://example.com",
    "connection string": "Server=db;User Id=sa;Password={};Timeout=3",
    "Chinese prose": "密码：{}",
}

ORDINARY = (
    "the token count is 700",
    "max_tokens=512",
    '"max_tokens": 512, "completion_tokens": 123',
    "primary_key=True",
    "sort_key=name",
    "monkey=banana",
    "key: value",
    '{"key": "abc123def456"}',
    "API_KEY=<your-key>",
    "API_KEY=$TOKEN",
    "API_KEY=${API_KEY}",
    'api_key=os.environ["X_KEY"]',
    'api_key = os.getenv("OPENAI_API_KEY")',
    "GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}",
    "OPENAI_API_KEY=sk-...",
    "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx",
    'export API_KEY="YOUR_API_KEY_HERE"',
    "password: ***",
    "PASSWORD=changeme",
    "password = models.CharField(max_length=128)",
    "password: Optional[str] = None",
    "password: string;",
    "authenticate(username=username, password=raw_password)",
    "if password == other_password:",
    '"password": "Enter your password"',
    '"password": "This field is required."',
    "Password: at least 8 characters",
    'forgotPassword: "Forgot your password?"',
    "The password was changed on 2024-01-02",
    "const token = req.headers.authorization",
    "token = lexer.next_token2",
    "token = self.get_token(user1)",
    "auth: CredentialAuthCreateParameters",
    'nextPageToken: "CAUQAA12345678"',
    'eos_token="<|endoftext|>"',
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "tool_call_id: call_abc123def456ghi789",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "Bearer authentication is used",
    "Basic understanding of CSS3",
    "SSH_KEY=/home/bob/.ssh/id_rsa",
    "https://user:password@host/",
    "https://localhost:8080/@scope/pkg",
    "sk-loading-indicator-container-wide",
    "task-1234567890123456789",
    '{"cmd":"pwd","workdir":"/srv"}',
    "-----BEGIN PRIVATE KEY-----",
    "between `-----BEGIN PRIVATE KEY-----` and `-----END PRIVATE KEY-----`",
    "passwd: files systemd",
    "the key is under the mat",
    "passport: X1234567",
    "token: 0x52908400098527886E0F7030069857D2E4169EE7",
    "pay to DE89370400440532013000",
    "no password: required",
    "is password: yes/no",
    "reset password: JIRA-1234",
    "requires password: 8-16 characters",
    "next token: CAUQAA12345678",
    "public key: AAAAB3NzaC1yc2EAAAADAQABAAAB",
    "password=make_password(1)",
    "password=get(a1)[2].value",
    "password = (String)obj.get1(x)",
    "password=form.data[0],port=3",
    "if(e.password=t[0]){return 1}",
    "MAILER_TOKEN=\nHOST=mx1.example25\n",
    "token:\n  type: string2abc\n",
    "token =\n    make_token2x9(4)",
    "password:\n- at least 8 characters",
    "password\tvarchar(255)\tno",
    "C:\\password\\test12345",
    "https://localhost:8080/a1?by=bob@x.example",
    "http://host:$PORT/a1@b",
    "git+https://host:8443/repo.git@v1.0",
    "API_KEY = get_key()",
    "API_KEY = SomeClassName",
    "API_KEY = authentication required here",
    "2019 2020 2021 2022 2023 2024",
    "4012 1200 3400 5510 6000",
)


@pytest.fixture
def drawn() -> random.Random:
    print(f"REDACTION_SEED={SEED}")
    return random.Random(SEED)


def draw(source: random.Random, shape: tuple[str, str, int]) -> str:
    prefix, letters, length = shape
    # One of each class, as a drawn key of this length has: the draw must not be all letters.
    tail = [source.choice(letters) for _ in range(length - 1)]
    tail.insert(source.randrange(length // 2, length), source.choice(string.digits))
    return prefix + "".join(tail)


def private_key(source: random.Random, *, lines: int = 6) -> str:
    body = "\n".join(draw(source, ("", LETTERS + "+/", 64)) for _ in range(lines))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{body}\nQkFTRTY0==\n-----END RSA PRIVATE KEY-----"


def leaks(carrier: str, secret: str) -> str:
    """What is wrong with how a carrier was redacted; empty when only the secret is gone."""
    text = carrier.format(secret)
    redacted = redact(text)
    hidden = [text[span.original_start : span.original_end] for span in redacted.spans]
    return "" if hidden == [secret] else f"{text!r} → {redacted.text!r}"


# What becomes a marker.


@pytest.mark.parametrize("carrier", BARE_CARRIERS)
@pytest.mark.parametrize("shape", KNOWN_SHAPES)
def test_a_known_shape_is_hidden_wherever_it_stands(drawn, shape, carrier):
    secrets = [draw(drawn, KNOWN_SHAPES[shape]) for _ in range(SECRETS_PER_PAIR)]
    assert [found for one in secrets if (found := leaks(BARE_CARRIERS[carrier], one))] == []


@pytest.mark.parametrize(
    "text",
    [
        "call_9fQ2mZ7xLk3PqRs8TuVw1aBc answers chatcmpl-8aZ3kQ9fLm2XpRs7TuVw1",
        "The keys are key-value pairs, and fc-cache runs before re_match_object_name.",
        "commit 4f2a9c1be07d5583a6e1f09bc2d7748e51ab3c90 of sk_learn_pipeline_test_data",
        "Order re_12345678_x, form napi_version_8, pa-systems-for-a-long-evening-in-the-park",
        "The path dapi/v2 and the class fw_container_of_all_the_things_here stay.",
    ],
)
def test_identifiers_that_begin_as_keys_of_providers_do_stay(text):
    assert redact(text).text == text


@pytest.mark.parametrize("carrier", NAMED_CARRIERS)
@pytest.mark.parametrize("shape", NAMED_SHAPES)
def test_a_value_is_hidden_behind_a_name_that_says_so(drawn, shape, carrier):
    secrets = [draw(drawn, NAMED_SHAPES[shape]) for _ in range(SECRETS_PER_PAIR)]
    assert [found for one in secrets if (found := leaks(NAMED_CARRIERS[carrier], one))] == []


@pytest.mark.parametrize("carrier", PASSWORD_CARRIERS)
@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_need_not_look_like_one(password, carrier):
    assert leaks(PASSWORD_CARRIERS[carrier], password) == ""


@pytest.mark.parametrize(
    "carrier",
    ["is password={}", "no password: {}", "what I use is password: {}", "invalid password='{}'",
     "reset password: {}", "there is no token: {}", "an invalid secret = {}"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["hunter2Xk9q!z", "8f7a6b5c4d3e2f1a9b"])
def test_a_word_before_the_name_does_not_outweigh_a_sign_after_it(carrier, value):
    assert leaks(carrier, value) == ""


@pytest.mark.parametrize(
    "carrier", ["password={}", "password: {}", "password = {}", "login(password={}, port=3)"]
)
@pytest.mark.parametrize("value", ["p(4)ssW0rd9!", "p@ss,word)1", "p@ss;w0rd|9", "[p4ss]W0rd9!"])
def test_brackets_and_commas_inside_a_password_go_with_it(carrier, value):
    assert leaks(carrier, value) == ""


def test_the_pair_after_a_password_with_marks_stays():
    text = "Password=p@ss,w0rd;Timeout=3"
    assert redact(text).text == "Password=[REDACTED:password];Timeout=3"


@pytest.mark.parametrize(
    "carrier",
    ["MAILER_TOKEN=\n{}\nHOST=x", "MAILER_TOKEN=\\n{}\\nHOST=x", "API key:\n\n  {}\n",
     "**Token:**\n{}", "API key:\n```text\n{}\n```", "password:\r\n  '{}'"],
)  # fmt: skip
def test_a_value_on_the_line_below_its_name_goes(carrier):
    assert leaks(carrier, "xK93ksLLqpe8812jjaQ") == ""


@pytest.mark.parametrize(
    "carrier", ["PASSWORD\t{}", "PASSWORD\\t{}", "password\t{}\tbob", "TOKEN\t{}"]
)
def test_a_value_behind_a_tab_goes(carrier):
    assert leaks(carrier, "hunter2Xk9qz") == ""


@pytest.mark.parametrize("password", ["s3cr3t/Pw99", "s3cr3t/P@w99", "s3?cr3t", "1a/2b/3c"])
@pytest.mark.parametrize("rest", ["db", "db.example:5432/app", "[::1]/app"])
def test_a_password_of_an_address_may_hold_a_slash(password, rest):
    assert leaks("postgres://bob:{}@" + rest, password) == ""


@pytest.mark.parametrize("sign", ["=", " = ", ": ", " := "])
@pytest.mark.parametrize("name", ["API_KEY", "MAILER_TOKEN", "CLIENT_SECRET"])
def test_letters_alone_are_a_secret_behind_a_name_in_capitals(name, sign):
    assert leaks(f"{name}{sign}{{}}\n", "lettersonlyverylong") == ""


@pytest.mark.parametrize(
    "marker", ["[REDACTED:x]", "[REDACTED:password][REDACTED:x]", "[REDACTED]"]
)
@pytest.mark.parametrize(
    "carrier",
    ["password={}{}", "PASSWORD={}{}", "password: '{}{}'", "password={1}{0}", "API_TOKEN={}{}",
     "postgres://bob:{}{}@db", "Authorization: Bearer {}{}", "curl -u bob:{}{} x.example",
     "TOKEN=\n{}{}"],
)  # fmt: skip
def test_a_marker_that_somebody_typed_shields_nothing(carrier, marker):
    assert "hunter2" not in redact(carrier.format(marker, "hunter2Xk9qz8")).text


def test_a_marker_inside_a_password_parts_it():
    assert redact("password=ab[REDACTED:x]cdef9!hunter").text == (
        "password=[REDACTED:password][REDACTED:x][REDACTED:password]"
    )


def test_a_marker_inside_a_private_key_does_not_keep_it(drawn):
    key = private_key(drawn)
    redacted = redact(key[:150] + "[REDACTED:x]" + key[150:])
    assert redacted.text == "[REDACTED:private-key][REDACTED:x][REDACTED:private-key]"


def test_a_value_over_length_goes_whole(drawn):
    assert leaks("password={}", draw(drawn, ("", LETTERS, 9000))) == ""


def test_the_name_stays_and_the_marker_says_the_kind():
    text = "MAILER_TOKEN=tok-live-7777777777777777777777 HOST=mx.example\n"
    text += "Authorization: Bearer fedcbafedcbafedcbafedcba"
    assert redact(text).text == (
        "MAILER_TOKEN=[REDACTED:token] HOST=mx.example\nAuthorization: Bearer [REDACTED:bearer]"
    )


def test_kinds_are_counted():
    text = "PASSWORD=hunter2 and again PASSWORD=hunter3, card 4111 1111 1111 1111"
    assert redact(text).kinds == {"password": 2, "card": 1}


def test_a_web_token_goes_whole():
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"
    assert redact(f"cookie {token}; path=/").text == "cookie [REDACTED:jwt]; path=/"


def test_the_secret_beside_an_access_key_of_a_cloud_goes_too(drawn):
    key, secret = draw(drawn, ("AKIA", UPPER, 16)), draw(drawn, ("", LETTERS, 40))
    assert redact(f"{key},{secret}").text == "[REDACTED:aws-key],[REDACTED:aws-key]"


def test_a_user_and_password_in_base64_go():
    header = "Authorization: Basic dXNlcjpwYXNzd29yZA=="
    assert redact(header).text == "Authorization: Basic [REDACTED:basic-auth]"


@pytest.mark.parametrize(
    "written",
    [
        lambda key: key,
        lambda key: json.dumps({"key": key})[9:-2],
        lambda key: key.replace("\n", "\\\\n"),
        lambda key: "\n".join(f"{n:6}→{line}" for n, line in enumerate(key.split("\n"), 1))[7:],
        lambda key: key.replace("\n", "\n    "),
        lambda key: key.replace("\n", "\n+"),
    ],
    ids=["plain", "escaped", "twice escaped", "numbered", "indented", "in a diff"],
)
def test_a_private_key_goes_whole(drawn, written):
    key = written(private_key(drawn))
    assert redact(f"before\n{key}\nafter it").text == "before\n[REDACTED:private-key]\nafter it"


@pytest.mark.parametrize("escaped", [False, True])
def test_a_private_key_that_was_cut_off_goes_up_to_the_cut(drawn, escaped):
    key = private_key(drawn)[:300]
    text = (key + "\n\nThe rest was cut off.").replace("\n", "\\n" if escaped else "\n")
    redacted = redact(text).text
    assert redacted.startswith("[REDACTED:private-key]")
    assert redacted.endswith("The rest was cut off.")


@pytest.mark.parametrize(
    "number",
    ["4111 1111 1111 1111", "5500-0055-5555-5559", "378282246310005", "3782 822463 10005",
     "6011111111111117", "2223003122003222", "3530111333300000"],
)  # fmt: skip
def test_a_card_number_goes(number):
    assert redact(f"pay with {number}, thanks").text == "pay with [REDACTED:card], thanks"


@pytest.mark.parametrize(
    "number",
    ["4111 1111 1111 1112", "1234567890123452", "0.4111111111111111", "4222222222222",
     "1700000000000", "4111-1111 1111-1111", "x4111111111111111"],
)  # fmt: skip
def test_a_number_that_no_card_has_stays(number):
    assert redact(f"order {number} was sent").spans == ()


CARD = "4111 1111 1111 1111"


@pytest.mark.parametrize(
    "beside",
    ["{} 123", "{} 12/27", "{} 12/27 123", "{} 1227", "order 2024 {}", "12 {} 99", "{}-123",
     "4000 {}", "2024-{}", "卡号{}，谢谢", "said\\n{}"],
)  # fmt: skip
@pytest.mark.parametrize("number", [CARD, "3782 822463 10005", "5500-0055-5555-5559"])
def test_a_card_number_goes_from_among_other_digits(beside, number):
    assert redact(beside.format(number)).text == beside.format("[REDACTED:card]")


@pytest.mark.parametrize("gap", ["  ", "\u00a0", "\u202f", " \u00a0", ".", "\\u00a0"])
def test_a_card_number_goes_whatever_space_is_between_its_groups(gap):
    text = f"pay with {CARD.replace(' ', gap)} 123"
    assert redact(text).text == "pay with [REDACTED:card] 123"


@pytest.mark.parametrize("number", ["6200 0000 0000 0000 000", "4000 0000 0000 0000 006"])
def test_a_card_number_of_nineteen_digits_goes_whole(number):
    assert redact(f"pay with {number}, thanks").text == "pay with [REDACTED:card], thanks"


def test_two_card_numbers_side_by_side_both_go():
    assert redact(f"{CARD} {CARD}").text == "[REDACTED:card] [REDACTED:card]"


def test_a_number_of_a_rare_length_goes_where_it_is_called_a_card():
    assert redact("his Visa 4222222222222").text == "his Visa [REDACTED:card]"


# What stays.


@pytest.mark.parametrize("text", ORDINARY)
def test_what_only_looks_like_a_secret_stays(text):
    assert redact(text).text == text


def test_a_text_without_secrets_is_returned_itself():
    text = "nothing here " * 50
    assert redact(text).text is text


def test_real_conversations_without_keys_stay_as_they_are(shared):
    fired: Counter[str] = Counter()
    texts = 0
    for path in sorted((shared / "data").rglob("*.json*")):
        for line in path.read_text(errors="replace").splitlines():
            texts += 1
            fired += redact(line).kinds
    print(f"{texts} lines: {dict(fired)}")
    assert sum(fired.values()) <= texts // 1000


# Offsets.


def test_an_offset_leads_back_to_the_original():
    text = "a PASSWORD=hunter2 then TOKEN=abc123def456 end"
    redacted = redact(text)
    at = redacted.text.index("end")
    assert text[redacted.original(at) : redacted.original_end(at + 3)] == "end"


def test_an_offset_inside_a_marker_leads_to_what_it_hides():
    redacted = redact("PASSWORD=hunter2 x")
    inside = redacted.text.index("DACTED")
    assert (redacted.original(inside), redacted.original_end(inside)) == (9, 16)


def test_the_end_of_a_marker_leads_to_the_end_of_what_it_hides():
    redacted = redact("PASSWORD=hunter2")
    assert redacted.original_end(len(redacted.text)) == 16


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_original_of_a_piece_contains_it(start, length):
    text = "one PASSWORD=hunter2 two API_TOKEN=abc123def456 three 4111 1111 1111 1111 four"
    redacted = redact(text)
    end = min(start + length, len(redacted.text))
    begin = min(start, end)
    original = text[redacted.original(begin) : redacted.original_end(end)]
    assert len(redacted.spans) == 3
    for word in ("one", "two", "three", "four"):
        assert (word in redacted.text[begin:end]) <= (word in original)


# Properties.

PIECES = st.sampled_from(
    ["PASSWORD=", "token: ", '"api_key": "', "sk-", "ghp_", "AKIA", "Bearer ", "Authorization: ", "://",
     "a1b2c3d4e5f6a7b8c9d0", "@", ":", '"', "\\", "\n", " ", "4111 1111 1111 1111", "eyJ", ".", "x",
     "-----BEGIN PRIVATE KEY-----", "[REDACTED:", "[REDACTED:token]", "密码是", "hunter2",
     "İ", "]", "is ", "=", "(4)a", ",", "/", "\t", "[REDACTED:x]", "no password: ", " 123"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=8), max_size=14).map("".join))
def test_a_redacted_text_has_nothing_left_to_redact(text):
    once = redact(text).text
    assert redact(once).text == once


@given(st.lists(PIECES | st.text(max_size=8), max_size=14).map("".join))
def test_what_is_not_hidden_stays_as_it_was(text):
    redacted = redact(text)
    before = after = 0
    for start, end, original_start, original_end, _ in redacted.spans:
        assert redacted.text[after:start] == text[before:original_start]
        before, after = original_end, end
    assert redacted.text[after:] == text[before:]


@pytest.mark.parametrize(
    "piece",
    ["x", "key", "password=a", "sk-", "://a:", "4111", "4111 ", "eyJaaaa.", "\\", "password:((",
     "token:\n", "password=[REDACTED:x]", "://ab:c1/@@"],
)  # fmt: skip
def test_a_long_text_without_a_space_comes_to_an_end(piece):
    text = piece * (300_000 // len(piece))
    assert len(redact(text).spans) < len(text) // len(piece)


# Items.


def test_items_are_redacted_in_text_and_calls():
    call = ToolCall(id="c1", name="deploy", arguments='{"api_key": "8f7a6b5c4d3e2f1a"}')
    items, changed = redact_items([Item(id=7, role="assistant", text="ok", tool_calls=(call,))])
    assert items[0].tool_calls[0].arguments == '{"api_key": "[REDACTED:key]"}'
    assert changed == {}


def test_the_items_whose_text_changed_are_named():
    items, changed = redact_items(
        [Item(id=1, role="user", text="PASSWORD=hunter2"), Item(id=2, role="user", text="hello")]
    )
    assert items[0].text == "PASSWORD=[REDACTED:password]"
    assert list(changed) == [1]


def test_an_item_without_secrets_is_the_same_item():
    item = Item(id=1, role="tool", text="3 passed", tool_calls=(ToolCall(id="c", name="x"),))
    assert redact_items([item])[0][0] is item


@pytest.mark.parametrize("arguments", ['{"password": 12345678, "n": 1}', '{"n": 4111111111111111}'])
def test_arguments_stay_json_where_a_number_is_hidden(arguments):
    call = ToolCall(id="c1", name="pay", arguments=arguments)
    items, _ = redact_items([Item(id=7, role="assistant", tool_calls=(call,))])
    assert "[REDACTED:" in str(json.loads(items[0].tool_calls[0].arguments))


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ("Authorization: ", "SSWS 00aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b"),
        ("cloudflare key: ", "4f9c2b7a81d3e6f50a9b8c7d6e5f4a3b2c1d0"),
        ("okta_key = ", "00aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b"),
        ("airtable key: ", "keyF3k9Qz71LmPx2V"),
    ],
)
def test_keys_without_a_mark_of_their_own_are_told_by_what_stands_before(before, value):
    assert value not in redact(f"It said {before}{value} there.").text


def test_a_handler_of_keys_is_no_key():
    assert redact("Call keyPressHandler2a there.").text == "Call keyPressHandler2a there."

"""What a mark inside a secret gives away is hidden; what only looks like it stays."""

from __future__ import annotations

import pytest

from compaction.engine.fidelity.redaction import redact

WEBHOOK = "Ls6v6O9JL8ZsoWwRxlIUiTeq7kP2aZx4" * 2
DRAWN = "Xk7Qm2Vt9Lw4Rz8Np3Bc6Hd1"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (
            f"Post to https://discord.com/api/webhooks/167757907213873519/{WEBHOOK} then.",
            "Post to https://discord.com/api/webhooks/167757907213873519/[REDACTED:webhook] then.",
        ),
        ("GET /c/f.txt?se=1&sig=" + WEBHOOK, "GET /c/f.txt?se=1&sig=[REDACTED:api-key]"),
        (f"Cookie: theme=dark; sid={DRAWN}", "Cookie: theme=dark; sid=[REDACTED:cookie]"),
        (
            f"Set-Cookie: connect.sid={DRAWN}; Path=/; HttpOnly",
            "Set-Cookie: connect.sid=[REDACTED:cookie]; Path=/; HttpOnly",
        ),
        ("mysql -u root -pQx7JztpDRo shop", "mysql -u root -p[REDACTED:password] shop"),
        ("sshpass -p 'Qx7JztpDRo' ssh web", "sshpass -p '[REDACTED:password]' ssh web"),
        ("WIFI:S:Cafe;T:WPA;P:Qx7JztpDRo;;", "WIFI:S:Cafe;T:WPA;P:[REDACTED:password];;"),
        ("1/2045937923319921:" + "6fb06486" * 4, "[REDACTED:api-key]"),
    ],
)
def test_a_secret_that_its_place_gives_away_is_hidden(text, hidden):
    assert redact(text).text == hidden


@pytest.mark.parametrize(
    "text",
    [
        "commit 9db57b6bc8f22843f3226ee7245a5ac794a9e65f fixes it",
        "id 4c1d9a52-77f0-4a0e-9b71-0d5e2f9a1c33 was moved",
        "SHA256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        '"integrity": "sha512-' + "Ab1" * 28 + 'Zz=="',
        "VGhpcyBpcyBvcmRpbmFyeSB0ZXh0IHRoYXQgc29tZWJvZHkgZW5jb2RlZC4=",
        "mysql --port 3307 -P shop, or mysqldump -proto",
        "Cookie: theme=dark; lang=en-GB; consent=accepted",
        "as-is, ak-47 and a pattern.of words",
        "The SCWEBSITEMIGRATION2 flag, and path patterns",
        "https://discord.com/channels/167757907213873519/167757907213873520",
        "Sign here: sig=no",
    ],
)
def test_what_opens_nothing_stays(text):
    assert redact(text).text == text


@pytest.mark.parametrize("piece", ["q~", ".atlasv1.", "mysql -p", "cookie: a=", "WIFI:", "MMM."])
def test_a_megabyte_of_marks_comes_to_an_end(piece):
    assert len(redact(piece * (1_000_000 // len(piece))).text) > 900_000

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
        ("sshpass -p Qx7JztpDRo ssh web", "sshpass -p [REDACTED:password] ssh web"),
        ("sshpass -p hunterlord ssh web", "sshpass -p [REDACTED:password] ssh web"),
        ("sshpass -phunter!lord ./run", "sshpass -p[REDACTED:password] ./run"),
        ('sshpass -p "hunterlord" ./run', 'sshpass -p "[REDACTED:password]" ./run'),
        ("$ sudo mysql -uroot -pQx7Jz;ls -l", "$ sudo mysql -uroot -p[REDACTED:password];ls -l"),
        ("cat a.sql | mysql shop -pQx7Jz", "cat a.sql | mysql shop -p[REDACTED:password]"),
        (
            "cd /a && mysqldump -p'hunterlord' shop",
            "cd /a && mysqldump -p'[REDACTED:password]' shop",
        ),
        ("Run `mysql -h db -pQx7Jz`.", "Run `mysql -h db -p[REDACTED:password]`."),
        ('{"command": "mysql -u a -pQx7Jz"}', '{"command": "mysql -u a -p[REDACTED:password]"}'),
        ("docker exec -it db mysql -pQx7Jz", "docker exec -it db mysql -p[REDACTED:password]"),
        ("/usr/bin/mysqladmin -pQx7Jz ping", "/usr/bin/mysqladmin -p[REDACTED:password] ping"),
        ("  - mysql -uroot -pQx7Jz -e 1", "  - mysql -uroot -p[REDACTED:password] -e 1"),
        ("RUN mysql --user=a -pQx7Jz", "RUN mysql --user=a -p[REDACTED:password]"),
        ("WIFI:T:WPA;P:Qx7JztpDRo;S:Cafe;;", "WIFI:T:WPA;P:[REDACTED:password];S:Cafe;;"),
        ("WIFI:S:Cafe;T:WPA;P:Qx7JztpDRo;;", "WIFI:S:Cafe;T:WPA;P:[REDACTED:password];;"),
        # Keys of several pieces with dots between look like calls of a program.
        (f"DISCORD_TOKEN={DRAWN}.a3bK9j.{WEBHOOK[:38]}", "DISCORD_TOKEN=[REDACTED:token]"),
        (f"X_KEY={DRAWN}.qjSc3v", "X_KEY=[REDACTED:key]"),
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
        "docker run --name mysql -p3306:3306",
        "docker run --name mysql -p3306:3306 -v a1:/var/lib/mysql mysql:8 -p33061",
        "docker run --name mysql -u 999 -p127.0.0.1:3306:3306 mysql:8",
        "docker run --name mysql -u 999 -p3306:3306/tcp mysql:8",
        '["docker", "run --name mysql -u 999 -p3306:3306"]',
        "mysql is up; connect with ssh -p2222 root@db",
        "start mysql and then psql -p5432",
        "dump mysql then run nmap -p1-1000 host",
        "dump mysql then run nmap -pT1000,U53 host",
        "mysql -port=3306",
        "mysql -h db -p3306 shop",
        "`mysql` -p3306, `mysql -port=3306`",
        "mysql -u root -p; ssh -pA2222b root@db",
        "mysql -u root -p | grep -pA2222b",
        '["mysql -u root -p","-v11"]',
        "Use sshpass -p instead of keys.",
        "The sshpass -p flag is insecure.",
        "Call `sshpass -p`, not `sshpass -f`.",
        "sshpass -p without ssh keys; sshpass -p command-line use",
        "WIFI: down again; P: high; owner: Ann;",
        "GET /c?sig=verify_the_signature_of_the_incoming_webhook",
        "https://webhook.office.com/webhookb2/the-name-of-our-team/IncomingWebhook/placeholder",
        "Cookie: theme=SolarizedDarkEdition2026; file=secret_marks_2026_final.py",
        "Cookies: see page=organization_service_accounts_overview",
    ],
)
def test_what_opens_nothing_stays(text):
    assert redact(text).text == text


@pytest.mark.parametrize(
    "name",
    [
        "snyk_vulnerability_report_for_backend_services.json",
        "snyk_organization_service_accounts_overview",
        "snyk_Report_2026_of_all_Backend_Services_v2.json",
        "snyk_results_4f9a2c71_of_all_backend_services.json",
        "pcsk_subtilisin_kexin_type_9_inhibitor_trial_results",
        "fo1_output_of_the_first_forwarding_order_stage_two",
        "sq0atp-square-application-token-of-the-shop",
        "sq0csp-square-client-secret-of-the-shop",
        "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pplication",
        "CFPAT-personal-access-tokens-of-our-content-team",
        "vca_VeryLongClassNameForTheWholeThing",
        "vcr_cassettesofallthetests",
        "glc_documents/of/the/global/land/cover/service",
        "FLWSECK-documentation",
        "rzp_test_integrationdoc",
        "SCWEBSITEMIGRATIONS2",
        "jina_embeddings_for_multilingual_retrieval_tasks",
        "figd_tokens_of_the_design_system_for_buttons",
        "glsa_grafana_service_accounts_overview",
    ],
)
def test_a_name_that_begins_as_a_key_does_stays(name):
    text = f"See `{name}` and {name}, or .{name} {{}}"
    assert redact(text).text == text


OPTIONS = ("mysql -a b ", "mysql" + " -a b" * 9, "sshpass -p a", "WIFI:S:a;", "exec -a ", "snyk_a")


@pytest.mark.parametrize(
    "piece", ["q~", ".atlasv1.", "mysql -p", "cookie: a=", "WIFI:", "MMM.", *OPTIONS]
)
def test_a_long_text_of_marks_comes_to_an_end(piece):
    assert len(redact(piece * (300_000 // len(piece))).text) > 270_000


@pytest.mark.parametrize(
    "text",
    [
        "FOO_TOKEN=app.settings.token",
        "X_KEY=s3Client.getSecretAccessKeyId2026",
        "API_KEY=vault.read",
        "AUTH_TOKEN=base64UrlSafeEncoderV2.encode",
    ],
)
def test_a_call_of_a_program_stays(text):
    assert redact(text).text == text

"""Alerts: who is told of what, how often, and what a webhook may lead to."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.core import mail
from django.utils import timezone

from compaction import tasks
from compaction.attention import alerts, webhook
from compaction.attention.alerts import send_alerts
from compaction.attention.listing import needs_look
from compaction.attention.marks import bring_back, mark_done, snooze
from compaction.attention.webhook import WebhookError, is_public, post_json
from compaction.models import LookMark, ModelBreaker
from tests.compaction.support import NEVER
from tests.compaction.test_checks import found as found
from tests.compaction.test_needs_look import SECRET, failed_run, failing_model, left_out, overflow
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
BASE = "https://chat.example.com"


@pytest.fixture
def session(owner, queued):
    profile(**NEVER, keep_last_n=2)
    return SessionFactory(owner=owner, title=SECRET, wires=talk(4))


@pytest.fixture
def mailed(settings):
    """Have alerts mailed."""
    settings.COMPACTION = settings.COMPACTION | {
        "ALERT_EMAILS": ("ops@example.com",), "ALERT_BASE_URL": f"{BASE}/",
    }  # fmt: skip
    return mail.outbox


class Listener:
    """A webhook on loopback that remembers what it was sent and answers as it is told."""

    def __init__(self, status: int = 204, location: str = "") -> None:
        told: list[dict] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.told = told
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?key=1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()


def hook(settings, url: str, **more) -> None:
    settings.COMPACTION = settings.COMPACTION | {
        "ALERT_WEBHOOK": url, "ALERT_WEBHOOK_PRIVATE": True, "ALERT_BASE_URL": BASE, **more,
    }  # fmt: skip


# --- how often ------------------------------------------------------------------------------------


def test_nobody_is_told_by_default(session):
    left_out(session)
    assert send_alerts().things == 0
    assert not mail.outbox and not LookMark.objects.exists()


def test_one_mail_tells_of_each_thing_once(session, mailed):
    record = left_out(session)
    failing_model()
    assert send_alerts().things == 2
    assert send_alerts().things == 0
    (sent,) = mailed
    assert (sent.subject, sent.to) == ("Palimpsest: 2 things to look at", ["ops@example.com"])
    assert f"Session {str(session.pk)[-8:]} was answered with messages left out" in sent.body
    assert f"{BASE}/admin/chatapp/message/{record.message_id}/change/" in sent.body


def test_it_is_told_again_only_when_it_was_done_and_is_back(session, owner, mailed):
    left_out(session, timezone.now() - 2 * HOUR)
    send_alerts()
    left_out(session, timezone.now() - HOUR)
    assert send_alerts().things == 0
    mark_done(needs_look().items[0], by=owner)
    assert send_alerts().things == 0
    left_out(session)
    assert send_alerts().things == 1
    assert send_alerts().things == 0


def test_what_ended_by_itself_and_came_back_is_told_again(mailed):
    row = failing_model()
    send_alerts()
    ModelBreaker.objects.filter(pk=row.pk).update(failing_since=None)
    assert send_alerts().things == 0
    ModelBreaker.objects.filter(pk=row.pk).update(failing_since=timezone.now())
    assert send_alerts().things == 1


def test_what_is_brought_back_or_was_snoozed_is_not_told_twice(session, owner, mailed):
    left_out(session)
    send_alerts()
    mark = snooze(needs_look().items[0], until=timezone.now() + HOUR, by=owner)
    bring_back(mark)
    bring_back(mark_done(needs_look().items[0], by=owner))
    assert send_alerts().things == 0


def test_what_was_set_aside_before_anybody_was_told_is_not_told(session, owner, mailed):
    left_out(session)
    mark_done(needs_look().items[0], by=owner)
    assert send_alerts().things == 0


def test_only_the_kinds_of_the_setting_are_told(session, settings, mailed):
    settings.COMPACTION = settings.COMPACTION | {"ALERT_KINDS": ("over_window",)}
    left_out(session)
    overflow(session)
    assert send_alerts().things == 1
    assert "larger than the window" in mailed[0].body


def test_many_things_go_in_several_alerts(owner, queued, mailed, monkeypatch):
    profile(**NEVER)
    monkeypatch.setattr(alerts, "MOST_AT_ONCE", 3)
    for _ in range(5):
        left_out(SessionFactory(owner=owner))
    assert [send_alerts().things for _ in range(3)] == [3, 2, 0]


def test_another_sweep_that_claimed_first_tells_alone(session, mailed, monkeypatch):
    left_out(session)
    real = alerts.mark_of

    def claimed_meanwhile(item):
        mark = real(item)
        LookMark.objects.filter(pk=mark.pk).update(alerted_at=timezone.now())
        return mark

    monkeypatch.setattr(alerts, "mark_of", claimed_meanwhile)
    assert send_alerts().things == 0
    assert not mailed


def test_what_no_way_took_is_told_with_the_next_sweep(session, mailed, monkeypatch):
    def down(*args, **kwargs):
        raise ConnectionRefusedError

    left_out(session)
    with monkeypatch.context() as patch:
        patch.setattr(alerts, "send_mail", down)
        assert send_alerts().things == 0
    assert send_alerts().things == 1


def test_the_sweep_of_a_worker_sends_them(session, mailed):
    left_out(session)
    assert tasks.sweep()["alerted_things"] == 1
    assert len(mailed) == 1


# --- what is told ---------------------------------------------------------------------------------


def test_no_text_of_a_conversation_is_told(session, settings, mailed):
    left_out(session)
    overflow(session)
    failed_run(session)
    with Listener() as to:
        hook(settings, to.url)
        assert send_alerts().ways == 2
    assert SECRET not in mailed[0].body + mailed[0].subject + json.dumps(to.told)
    assert "lorem" not in mailed[0].body + json.dumps(to.told)


def test_a_webhook_is_sent_kind_time_session_and_link(session, settings):
    run = failed_run(session)
    with Listener() as to:
        hook(settings, to.url)
        send_alerts()
    ((told,),) = [body["things"] for body in to.told]
    assert told == {
        "kind": "compaction_failed",
        "said": f"A compaction of session {str(session.pk)[-8:]} failed: the answer was no summary",
        "session": str(session.pk),
        "at": run.finished_at.isoformat(),
        "link": f"{BASE}/admin/compaction/compactionrun/{run.pk}/change/",
    }
    assert (to.told[0]["count"], to.told[0]["text"].count("\n")) == (1, 1)


def test_an_alert_leads_to_the_answer_or_the_turn_that_it_tells_of(session, settings):
    record, failed = left_out(session), overflow(session)
    with Listener() as to:
        hook(settings, to.url)
        send_alerts()
    links = {one["kind"]: one["link"] for body in to.told for one in body["things"]}
    assert links == {
        "left_out": f"{BASE}/admin/chatapp/message/{record.message_id}/change/",
        "over_window": f"{BASE}/admin/chatapp/incident/{failed.pk}/change/",
    }


# --- where a webhook leads ------------------------------------------------------------------------


def send(url: str, **changes) -> None:
    post_json(url, {"a": 1}, **({"seconds": 2, "allow_private": True} | changes))


def test_a_private_address_is_refused_unless_the_setting_allows_it():
    with Listener() as to:
        with pytest.raises(WebhookError, match="COMPACTION_ALERT_WEBHOOK_PRIVATE allows that"):
            send(to.url, allow_private=False)
        assert to.told == []
        send(to.url)
        assert to.told == [{"a": 1}]


def test_a_redirect_is_not_followed():
    with Listener() as inner, Listener(status=307, location=inner.url) as outer:
        with pytest.raises(WebhookError, match="HTTP status 307"):
            send(outer.url)
        assert (len(outer.told), inner.told) == (1, [])


def test_an_answer_that_is_no_success_is_an_error():
    with Listener(status=500) as to, pytest.raises(WebhookError, match="HTTP status 500"):
        send(to.url)


@pytest.mark.parametrize("url", ["ftp://example.com/", "chat.example.com", "https://", "http://[x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(WebhookError, match="begins with https"):
        send(url)


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_gone_to(monkeypatch):
    asked = []

    def resolved(host, port, **kwargs):
        asked.append(host)
        return [(None, None, None, "", ("93.184.216.34", port))]

    def connected(address, timeout):
        raise ConnectionRefusedError(address[0])

    monkeypatch.setattr(webhook.socket, "getaddrinfo", resolved)
    monkeypatch.setattr(webhook.socket, "create_connection", connected)
    with pytest.raises(WebhookError) as refused:
        send("https://hooks.example.com/x?token=secret", allow_private=False)
    assert str(refused.value.__cause__) == "93.184.216.34"
    assert asked == ["hooks.example.com"]
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("127.0.0.1", False),
        ("10.1.2.3", False), ("192.168.0.1", False), ("169.254.169.254", False), ("::1", False),
        ("fe80::1%eth0", False), ("fd00::1", False), ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False), ("224.0.0.1", False), ("100.64.0.1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_those_of_the_internet(address, public):
    assert is_public(address) is public


# --- checks ---------------------------------------------------------------------------------------


def test_e011_a_webhook_must_be_an_address(found):
    told = found(compaction={"ALERT_WEBHOOK": "hooks", "ALERT_BASE_URL": BASE})
    assert "https://" in told["compaction.E011"].msg


def test_e012_the_kinds_must_be_there(found):
    told = found(compaction={"ALERT_KINDS": ("left_out", "leftout")})
    assert "leftout" in told["compaction.E012"].msg
    assert "left_out" in told["compaction.E012"].hint


def test_w004_mails_need_a_server(found, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST = ""
    asked = {"ALERT_EMAILS": ("ops@example.com",), "ALERT_BASE_URL": BASE}
    assert "EMAIL_HOST" in found(compaction=asked)["compaction.W004"].hint
    settings.EMAIL_HOST = "mail.example.com"
    assert found(compaction=asked) == {}


def test_w005_links_need_a_host(found):
    told = found(compaction={"ALERT_WEBHOOK": "https://hooks.example.com/"})
    assert list(told) == ["compaction.W005"]

"""Pinning on a message's page: who may, what is said, and what is refused."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission

from chatapp import transcript
from chatapp.context.backend import FullHistoryBackend
from chatapp.models import Message
from chatapp.transcript.writing import NewMessage
from tests.factories import SessionFactory, UserFactory, call, result, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows() -> list[Message]:
    """A question, an answer, a call with its result."""
    SessionFactory(wires=[*talk(1), call("f", "1"), result("1")])
    return list(Message.objects.order_by("position"))


@pytest.fixture
def operator(client):
    """Return a client that is logged in with these permissions."""

    def log_in(*names: str):
        staff = UserFactory(is_staff=True)
        staff.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(staff)
        return client

    return log_in


def page(row: Message, *further: str) -> str:
    return "/".join(["/admin/chatapp/message", str(row.pk), *(further or ["change"]), ""])


def pinned() -> list[bool]:
    return list(Message.objects.order_by("position").values_list("pinned", flat=True))


def test_a_group_is_pinned_and_unpinned_whole(rows, operator):
    client = operator("read_texts", "change_message")
    assert "Pin this message" in client.get(page(rows[3])).text
    answer = client.post(page(rows[3], "do", "pin"), follow=True)
    tokens = rows[2].tokens + rows[3].tokens
    assert f"Pinned 2 messages, {tokens:,} tokens: sent verbatim with every request." in answer.text
    assert pinned() == [False, False, True, True]
    assert "Take the pin back" in answer.text
    assert "Pin this message" not in answer.text
    answer = client.post(page(rows[2], "do", "unpin"), follow=True)
    assert f"2 messages, {tokens:,} tokens, no longer pinned" in answer.text
    assert pinned() == [False] * 4


def test_it_takes_the_permission_to_change_messages(rows, operator):
    client = operator("read_texts")
    assert "Pin this message" not in client.get(page(rows[0])).text
    assert client.post(page(rows[0], "do", "pin")).status_code == 403
    assert pinned() == [False] * 4


def test_what_the_backend_says_of_all_pins_stands_in_the_message(rows, operator, monkeypatch):
    sentence = "Pinned <b>messages</b> take 9 tokens & more."
    monkeypatch.setattr(
        "compaction.backend.CompactionBackend.pin_warning", lambda self, session: sentence
    )
    answer = operator("read_texts", "change_message").post(page(rows[0], "do", "pin"), follow=True)
    assert "Pinned &lt;b&gt;messages&lt;/b&gt; take 9 tokens &amp; more." in answer.text
    assert pinned()[0] is True


def test_a_placeholder_cannot_be_pinned(rows, operator):
    mark = NewMessage(wire={"role": "assistant", "content": None}, kind="placeholder", summary="s")
    (row,) = transcript.append(rows[0].branch, [mark])
    client = operator("read_texts", "change_message")
    assert "Pin this message" not in client.get(page(row)).text
    client.post(page(row, "do", "pin"))
    assert not any(pinned())


def test_pinning_what_is_pinned_meanwhile_says_how_things_stand(rows, operator):
    transcript.set_pinned(rows[0], True)
    client = operator("read_texts", "change_message")
    answer = client.post(page(rows[0], "do", "pin"), follow=True)
    assert "makes no sense here any more" in answer.text


def test_a_failing_backend_costs_no_pin(rows, operator, monkeypatch, settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend"}
    }

    def fail(self, session):
        raise RuntimeError

    monkeypatch.setattr(FullHistoryBackend, "pin_warning", fail, raising=False)
    client = operator("read_texts", "change_message")
    assert client.post(page(rows[0], "do", "pin")).status_code == 302
    assert pinned()[0] is True

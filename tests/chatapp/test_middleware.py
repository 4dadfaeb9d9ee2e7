"""Bodies of unknown length, through a real uvicorn: a test client always sends a length."""

from __future__ import annotations

import json

import httpx2
import pytest

from chatapp.models import Message
from tests.factories import SessionFactory, api_key

pytestmark = pytest.mark.django_db(transaction=True)
BODY = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()


@pytest.fixture
def post(asgi_server, owner):
    """Post a body to the messages of a session."""
    key = api_key(owner)
    session = SessionFactory(owner=owner)

    def send(content) -> httpx2.Response:
        return httpx2.post(
            f"{asgi_server.url}/api/v1/sessions/{session.pk}/messages/",
            content=content,
            headers={"Authorization": f"Token {key}", "Content-Type": "application/json"},
        )

    return send


def test_a_body_in_chunks_is_refused_and_not_taken_as_empty(post):
    response = post(iter([BODY[:10], BODY[10:]]))
    assert response.status_code == 411
    assert response.headers["content-type"] == "application/problem+json"
    assert "Content-Length" in response.json()["detail"]


def test_a_body_with_its_length_is_stored(post):
    assert post(BODY).status_code == 201
    assert Message.objects.get().content == "hello"

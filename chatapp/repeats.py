"""Requests that come twice: what an Idempotency-Key stored, and whether it is the same again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from uuid import UUID

from chatapp.drafts import Draft, KeyReusedError
from chatapp.models import Message


def digest_of(drafts: Sequence[Draft]) -> str:
    """Return what tells one body from another."""
    text = json.dumps([dict(draft.wire) for draft in drafts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def stored_under(session_id: UUID, client_key: str, digest: str) -> list[Message]:
    """Return the messages that were stored under a key, in order; none where it is new.

    Raises KeyReusedError where the key belongs to another body.
    """
    rows = list(
        Message.objects.filter(session_id=session_id, client_key=client_key).order_by(
            "client_index"
        )
    )
    if rows and rows[0].metadata.get("request_digest") != digest:
        raise KeyReusedError(
            "This Idempotency-Key was used for other messages of the session. "
            "Send the same body again, or a new key with the new one."
        )
    return rows

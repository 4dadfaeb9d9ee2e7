"""Going on from the server's last answer instead of sending the whole history again.

Document 002's `previous_response_id` mode, made safe: the answer's row remembers a digest of what
had been sent. Only where the next request begins with exactly that, and then the answer, does the
server hold what we would send; a new summary, a fork or a changed prompt makes it differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chatapp.assembling import Context
from chatapp.llm.messages import ModelRequest
from chatapp.llm.models import ModelConfig
from chatapp.models import Message, Session
from chatapp.selectors import segments

# In `metadata` of an answer: {"count": messages sent, "digest": of them, "model": who answered}.
SENT = "sent"


def goes_on(session: Session, model: ModelConfig) -> bool:
    """Whether the session's server keeps answers and may be asked to go on from one."""
    return session.api == Session.Api.RESPONSES and model.keeps_responses and not session.stateless


def continued(
    request: ModelRequest, session: Session, model: ModelConfig, context: Context
) -> ModelRequest:
    """Return the request as a continuation of the last answer, where that sends the same."""
    if not goes_on(session, model):
        return request
    kept = replace(request, stores=True)
    answer = _last_answer(session)
    sent = answer.metadata.get(SENT) if answer is not None and answer.response_id else None
    if answer is None or not isinstance(sent, dict) or sent.get("model") != _name_of(model):
        return kept
    count = sent["count"]
    places = context.places[count : count + 1]
    follows = len(context.messages) > count + 1 and places == (answer.place,)
    if not follows or digest_of(context.messages[:count]) != sent["digest"]:
        return kept
    return replace(kept, previous_response_id=answer.response_id, held=count + 1)


def _last_answer(session: Session) -> Message | None:
    """Return the newest assistant message of the path.

    Stretch by stretch, so that an index finds it however long the path is.
    """
    for stretch in segments(session.branch):
        rows = Message.objects.filter(
            branch_id=stretch.branch_id, role=Message.Role.ASSISTANT, kind=Message.Kind.MESSAGE
        )
        if stretch.through is not None:
            rows = rows.filter(position__lte=stretch.through)
        if (found := rows.order_by("-position").first()) is not None:
            return found
    return None


def sent_by(request: ModelRequest, model: ModelConfig) -> dict[str, Any]:
    """Return what the answer's row remembers of its request."""
    return {
        "count": len(request.messages),
        "digest": digest_of(request.messages),
        "model": _name_of(model),
    }


def _name_of(model: ModelConfig) -> str:
    """Return what tells one server's model from others: only it knows its answers."""
    return f"{model.name} at {model.base_url}"


def digest_of(messages: Sequence[dict[str, Any]]) -> str:
    """Return what tells one list of messages from another."""
    text = json.dumps(list(messages), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

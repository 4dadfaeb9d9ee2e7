"""The request that a model is sent for a context, before anybody sends it."""

from __future__ import annotations

from typing import Any

from chatapp.assembling import Context
from chatapp.continuing import continued
from chatapp.lessons import taught
from chatapp.llm.messages import ModelRequest
from chatapp.llm.models import ModelConfig, get_model
from chatapp.llm.wires import arguments_of
from chatapp.models import Session


def model_of(session: Session) -> ModelConfig:
    """Return the session's model with what its server taught.

    Raises UnknownModelError for a model that is gone.
    """
    return taught(get_model(session.model))


def request_of(
    session: Session, context: Context, model: ModelConfig, **details: Any
) -> ModelRequest:
    """Return the request of a session's turn; `details` are fields of ModelRequest."""
    room = context.account.room
    request = ModelRequest(
        messages=context.messages,
        places=context.places,
        tools=session.tools,
        # More room than the window has left would be refused although the request fits (B33).
        max_output=min(model.max_output, room) if room > 0 else model.max_output,
        api=session.api,
        plain_text=session.plain_text,
        **details,
    )
    return continued(request, session, model, context)


def body_of(session: Session, context: Context) -> dict[str, Any]:
    """Return the JSON body of a turn's request that is not streamed: model, messages, tools."""
    model = context.model or model_of(session)
    return arguments_of(model, request_of(session, context, model))

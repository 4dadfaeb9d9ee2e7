"""The request that a model is sent for a context, before anybody sends it."""

from __future__ import annotations

from typing import Any

from chatapp.context import Context
from chatapp.llm.chat import arguments_of
from chatapp.llm.messages import ModelRequest
from chatapp.llm.models import get_model
from chatapp.models import Session


def request_of(session: Session, context: Context, **details: Any) -> ModelRequest:
    """Return the request of a session's turn; `details` are fields of ModelRequest.

    Raises UnknownModelError for a model that is gone.
    """
    most = get_model(session.model).max_output
    room = context.account.window - context.account.used
    return ModelRequest(
        messages=context.messages,
        places=context.places,
        tools=session.tools,
        # More room than the window has left would be refused although the request fits (B33).
        max_output=min(most, room) if room > 0 else most,
        **details,
    )


def body_of(session: Session, context: Context) -> dict[str, Any]:
    """Return the JSON body of a turn's request that is not streamed: model, messages, tools."""
    return arguments_of(get_model(session.model), request_of(session, context))

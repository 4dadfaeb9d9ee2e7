"""What a server's usage report tells about the server: its way of counting, its real window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatapp.incidents import Kind, note
from chatapp.lessons import forget_window, learn_from_usage
from chatapp.llm.errors import exceeds_window, truncates_silently
from chatapp.llm.messages import ModelRequest, Reply
from chatapp.llm.models import ModelConfig, get_model
from chatapp.llm.usage import plausible
from chatapp.models import Session

if TYPE_CHECKING:
    from chatapp.assembling import Account


def take_in(
    session: Session,
    reply: Reply,
    *,
    model: ModelConfig,
    request: ModelRequest,
    account: Account,
) -> None:
    """Learn from the usage that came with an answer, and warn of what it gives away."""
    reported = plausible((reply.usage or {}).get("prompt_tokens"))
    if reported is None:
        return
    forget_window(model, reported)
    if truncates_silently(reported, account.used):
        _warn_of_truncation(session, reported, account.used)
    elif not _holds_parts(request):
        learn_from_usage(model, reported, account.used)
    configured = get_model(model.alias).context_window
    if exceeds_window(reply, configured):
        _warn_of_window(session, reported, configured)


def _holds_parts(request: ModelRequest) -> bool:
    """Whether there may be images, whose tokens every server counts in its own way."""
    return any(isinstance(message.get("content"), list) for message in request.messages)


def _warn_of_truncation(session: Session, reported: int, counted: int) -> None:
    note(
        session,
        Kind.WARNING,
        "truncated_silently",
        f"The server reports {reported:,} tokens for a request of about {counted:,}: it seems to "
        "leave the beginning out without saying so. Set its real window (OPENAI_CONTEXT_WINDOW), "
        "or raise the server's own (Ollama: num_ctx).",
        reported=reported,
        counted=counted,
    )


def _warn_of_window(session: Session, reported: int, window: int) -> None:
    note(
        session,
        Kind.WARNING,
        "window_exceeded",
        f"The server reports {reported:,} tokens, more than the window of {window:,} that is set "
        "for it, and answered all the same. Correct OPENAI_CONTEXT_WINDOW.",
        reported=reported,
        window=window,
    )

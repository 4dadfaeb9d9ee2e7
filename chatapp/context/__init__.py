"""What is sent: the seam to a context backend, and how the pieces become one request."""

from chatapp.context.assembly import Account, Context
from chatapp.context.backend import (
    BaseContextBackend,
    Emit,
    FullHistoryBackend,
    Recovery,
    TurnOutcome,
    context_backend,
    notify,
    silent,
)

__all__ = [
    "Account",
    "BaseContextBackend",
    "Context",
    "Emit",
    "FullHistoryBackend",
    "Recovery",
    "TurnOutcome",
    "context_backend",
    "notify",
    "silent",
]

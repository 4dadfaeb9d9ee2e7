"""Stored conversations: sessions, branches, messages."""

from chatapp.models.branch import Branch
from chatapp.models.message import Message
from chatapp.models.session import Session

__all__ = ["Branch", "Message", "Session"]

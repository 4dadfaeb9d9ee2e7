"""Stored conversations: sessions, branches, messages; what happened to turns and was learnt."""

from chatapp.models.branch import Branch
from chatapp.models.incident import Incident
from chatapp.models.lesson import Lesson
from chatapp.models.message import Message
from chatapp.models.original import MessageOriginal
from chatapp.models.session import Session

__all__ = ["Branch", "Incident", "Lesson", "Message", "MessageOriginal", "Session"]

"""The tables of the conversation, and of what an operator looks after."""

from chatapp.models.conversation import (
    MAX_LABEL_CHARS,
    POSITION_STEP,
    Branch,
    Message,
    MessageOriginal,
    Session,
)
from chatapp.models.operations import Incident, LearnedLimits

__all__ = [
    "MAX_LABEL_CHARS",
    "POSITION_STEP",
    "AnswerRequest",
    "ApiKey",
    "AuditEntry",
    "Branch",
    "ImportJob",
    "ImportPiece",
    "ImportedSession",
    "Incident",
    "LearnedLimits",
    "Message",
    "MessageOriginal",
    "Session",
]

# Last, so that Django knows the tables; each stands with what is done with it.
from chatapp.answer_requests import AnswerRequest
from chatapp.audit import AuditEntry
from chatapp.import_jobs import (
    ImportedSession,
    ImportJob,
    ImportPiece,
)
from chatapp.keys import ApiKey

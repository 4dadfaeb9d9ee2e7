"""The operators' pages of conversations: sessions, messages, incidents, limits, keys, imports."""

from chatapp.admin.audit import AuditEntryAdmin
from chatapp.admin.imports import ImportJobAdmin
from chatapp.admin.incidents import IncidentAdmin
from chatapp.admin.keys import ApiKeyAdmin
from chatapp.admin.limits import LearnedLimitsAdmin
from chatapp.admin.messages import MessageAdmin
from chatapp.admin.originals import MessageOriginalAdmin
from chatapp.admin.sessions import BranchAdmin, SessionAdmin
from chatapp.admin.users import ErasingPeople

__all__ = [
    "ApiKeyAdmin",
    "AuditEntryAdmin",
    "BranchAdmin",
    "ErasingPeople",
    "ImportJobAdmin",
    "IncidentAdmin",
    "LearnedLimitsAdmin",
    "MessageAdmin",
    "MessageOriginalAdmin",
    "SessionAdmin",
]

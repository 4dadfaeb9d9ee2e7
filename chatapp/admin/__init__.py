"""The operators' pages of conversations: sessions, messages, incidents, learned limits."""

from chatapp.admin.incidents import IncidentAdmin
from chatapp.admin.limits import LearnedLimitsAdmin
from chatapp.admin.messages import MessageAdmin
from chatapp.admin.sessions import BranchAdmin, SessionAdmin

__all__ = ["BranchAdmin", "IncidentAdmin", "LearnedLimitsAdmin", "MessageAdmin", "SessionAdmin"]

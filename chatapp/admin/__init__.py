"""The operators' pages of conversations: sessions, branches, messages, incidents, learned limits."""

from chatapp.admin.branch import BranchAdmin
from chatapp.admin.incident import IncidentAdmin
from chatapp.admin.lesson import LearnedLimitsAdmin
from chatapp.admin.message import MessageAdmin
from chatapp.admin.session import SessionAdmin

__all__ = ["BranchAdmin", "IncidentAdmin", "LearnedLimitsAdmin", "MessageAdmin", "SessionAdmin"]

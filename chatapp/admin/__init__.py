"""The operators' pages of conversations: sessions, branches, messages, incidents, lessons."""

from chatapp.admin.branch import BranchAdmin
from chatapp.admin.incident import IncidentAdmin
from chatapp.admin.lesson import LessonAdmin
from chatapp.admin.message import MessageAdmin
from chatapp.admin.session import SessionAdmin

__all__ = ["BranchAdmin", "IncidentAdmin", "LessonAdmin", "MessageAdmin", "SessionAdmin"]

"""The operators' pages of conversations: sessions, branches, messages."""

from chatapp.admin.branch import BranchAdmin
from chatapp.admin.message import MessageAdmin
from chatapp.admin.session import SessionAdmin

__all__ = ["BranchAdmin", "MessageAdmin", "SessionAdmin"]

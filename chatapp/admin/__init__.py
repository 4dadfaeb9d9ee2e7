"""The operators' pages of conversations: sessions, branches, messages."""

from django.contrib import admin

from chatapp.admin.branch import BranchAdmin
from chatapp.admin.message import MessageAdmin
from chatapp.admin.session import SessionAdmin

__all__ = ["BranchAdmin", "MessageAdmin", "SessionAdmin"]

admin.site.site_header = "Palimpsest"
admin.site.site_title = "Palimpsest"
admin.site.index_title = "Conversations and what is sent of them"

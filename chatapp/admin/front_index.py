"""The admin's index by what one does: groups of ways, in the place of a list of tables.

Tables that nobody opens by hand are linked from where they belong. What no entry names, a table of
another app for example, stands in the last group, so that nothing is lost; and every app's own page
still lists all of its tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Model
from django.http import HttpRequest
from django.utils.text import slugify

from chatapp.admin.models_page import NAME as MODELS_PAGE
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.extension import IndexEntry, admin_extensions
from chatapp.admin.toolkit.permissions import holds
from chatapp.models import (
    ApiKey,
    AuditEntry,
    Branch,
    ImportJob,
    Incident,
    LearnedLimits,
    Message,
    MessageOriginal,
    Session,
)

CONVERSATIONS, MODELS, PEOPLE = "Conversations", "Models", "People and access"
# Groups of other apps stand behind the conversations.
LAST = (MODELS, PEOPLE, "Settings", "Workers and queue")
OTHERS = "More tables"

ENTRIES = (
    IndexEntry(
        group=CONVERSATIONS,
        label="Sessions",
        does="Find a conversation, read it, see what the model was sent.",
        model=Session,
    ),
    IndexEntry(
        group=CONVERSATIONS,
        label="Messages",
        does="Find a message of any conversation.",
        model=Message,
    ),
    IndexEntry(
        group=CONVERSATIONS,
        label="Incidents",
        does="What did not go as planned in turns.",
        model=Incident,
    ),
    IndexEntry(
        group=CONVERSATIONS,
        label="Imports",
        does="How far files with conversations are.",
        model=ImportJob,
    ),
    IndexEntry(
        group=MODELS,
        label="Models",
        does="Ask a server whether it answers, and what it takes.",
        name=MODELS_PAGE,
        may=lambda request: holds(request, "chatapp.view_learnedlimits"),
    ),
    IndexEntry(
        group=MODELS,
        label="Learned limits",
        does="What servers taught about their windows.",
        model=LearnedLimits,
    ),
    IndexEntry(
        group=PEOPLE, label="People", does="Accounts; erase somebody.", model=get_user_model()
    ),
    IndexEntry(
        group=PEOPLE, label="Audit log", does="What people did to sessions.", model=AuditEntry
    ),
    IndexEntry(group=PEOPLE, label="Roles", does="Groups of permissions.", model=Group),
    IndexEntry(
        group=PEOPLE, label="API keys", does="Make a key for a program, revoke one.", model=ApiKey
    ),
)
LINKED_TABLES: tuple[type[Model], ...] = (Branch, MessageOriginal)


def groups_for(request: HttpRequest, apps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups that an operator may see, in the shape of Django's own list of apps."""
    tables = {table["model"]: table for app in apps for table in app["models"]}
    extensions = admin_extensions()
    further = [entry for each in extensions for entry in each.index_entries]
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in (*ENTRIES, *further):
        for way in _ways_of(request, entry, tables):
            groups.setdefault(entry.group, []).append(way)
    linked = {*LINKED_TABLES, *(model for each in extensions for model in each.linked_tables)}
    named = {entry.model for entry in (*ENTRIES, *further)}
    others = [table for model, table in tables.items() if model not in linked | named]
    if others:
        groups[OTHERS] = others
    order = [name for name in groups if name not in (*LAST, OTHERS)]
    shown = [name for name in (*order, *LAST, OTHERS) if name in groups]
    return [_group(name, groups[name]) for name in shown]


def _ways_of(
    request: HttpRequest, entry: IndexEntry, tables: dict[type[Model], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield an entry as Django's list has it; nothing where the operator may not go there."""
    if entry.model is not None:
        if entry.model in tables:
            yield tables[entry.model] | {"name": entry.label, "does": entry.does}
    elif entry.may(request):
        yield {
            "name": entry.label,
            "does": entry.does,
            "object_name": entry.name,
            "admin_url": html.plain_url(f"admin:{entry.name}"),
            "add_url": None,
            "view_only": True,
            "perms": {"view": True},
        }


def _group(name: str, ways: list[dict[str, Any]]) -> dict[str, Any]:
    slug = slugify(name)
    # Django takes the page for one of the group's where this stands in its address.
    url = f"{html.plain_url('admin:index')}#index-{slug}"
    return {
        "name": name, "app_label": slug, "app_url": url, "has_module_perms": True, "models": ways,
    }  # fmt: skip

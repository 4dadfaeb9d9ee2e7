"""What the admin's log tells: who did what with which row, without words of a conversation.

A session is named by its id there, because its title is a text: so the log needs no other
permission than the row's page, and outlives the title without telling it. Entries of older versions
hold titles; they are shown to whoever may see texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from chatapp.admin.toolkit.permissions import TEXTS_HIDDEN, may_see_texts, nameless
from chatapp.models import Session

REPR_CHARS = 200
_NAMELESS = r"^Session [0-9a-f]{8}$"


def write_entry(
    request: HttpRequest, row: Model, flag: int, message: str | Sequence[Any] = ""
) -> LogEntry:
    """Store who did something with a row; `message` is Django's list of changes, or a sentence.

    A row that is not stored is only named.
    """
    operator: Any = request.user
    return LogEntry.objects.create(
        user_id=operator.pk,
        content_type=ContentType.objects.get_for_model(row),
        object_id=None if row.pk is None else str(row.pk),
        object_repr=nameless(row)[:REPR_CHARS],
        action_flag=flag,
        change_message=message if isinstance(message, str) else json.dumps(message),
    )


def own_entries(request: HttpRequest, entries: QuerySet[LogEntry]) -> QuerySet[LogEntry]:
    """Return the entries of the front page, which names their rows, as far as they may be seen."""
    if may_see_texts(request):
        return entries
    labels = {
        "content_type__app_label": Session._meta.app_label,
        "content_type__model": Session._meta.model_name,
    }
    return entries.exclude(Q(**labels) & ~Q(object_repr__regex=_NAMELESS))


def told_to(request: HttpRequest, row: Model, entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the entries of a row's history; what an old one said is left out with the title."""
    shown = list(entries)
    if not may_see_texts(request):
        for entry in shown:
            if entry.object_repr != nameless(row)[:REPR_CHARS] and isinstance(row, Session):
                entry.change_message = TEXTS_HIDDEN
    return shown

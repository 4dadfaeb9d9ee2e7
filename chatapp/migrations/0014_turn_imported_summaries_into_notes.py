"""Imported summaries and custom messages were stored as questions of the user: they are notes."""

from typing import Any

from django.db import migrations

# What the importer of pi sessions wrote into the metadata of such rows.
TYPES = ("branch_summary", "compaction_summary", "custom_message")


def into_notes(apps: Any, schema_editor: Any) -> None:
    """Mark them. They count in sums as before: only their kind changes."""
    _imported(apps, kind="message").update(kind="note")


def into_messages(apps: Any, schema_editor: Any) -> None:
    """Mark them as the version before stored them."""
    _imported(apps, kind="note").update(kind="message")


def _imported(apps: Any, *, kind: str) -> Any:
    rows = apps.get_model("chatapp", "Message").objects.filter(
        session__import_key__isnull=False, role="user", kind=kind
    )
    # A client's own metadata have no key of an import.
    return rows.filter(metadata__type__in=TYPES, metadata__has_key="import_key")


class Migration(migrations.Migration):
    dependencies = [
        ("chatapp", "0013_write_notes"),
    ]

    operations = [migrations.RunPython(into_notes, into_messages, elidable=True)]

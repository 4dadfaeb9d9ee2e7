"""New rows get ids in the order of time (chatapp/ids.py); those that are there keep theirs.

A default is nothing to the database. SQLite would copy each table all the same, so that only
Django's own picture of the tables is told.

The sessions of audit entries need no index of their own: another begins with them.
"""

import django.db.models.deletion
from django.db import migrations, models

import chatapp.ids
from chatapp.database import drop_index_of, make_index_of

MODELS = ("apikey", "auditentry", "branch", "importjob", "incident", "message", "session")


def drop(apps, schema_editor):
    drop_index_of(schema_editor, apps.get_model("chatapp", "AuditEntry"), "session")


def make(apps, schema_editor):
    make_index_of(schema_editor, apps.get_model("chatapp", "AuditEntry"), "session")


class Migration(migrations.Migration):
    dependencies = [
        ("chatapp", "0022_let_roles_see_acts_and_originals"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name=name,
                    name="id",
                    field=models.UUIDField(
                        default=chatapp.ids.new_id, editable=False, primary_key=True,
                        serialize=False,
                    ),
                )
                for name in MODELS
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(drop, make)],
            state_operations=[
                migrations.AlterField(
                    model_name="auditentry",
                    name="session",
                    field=models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE,
                        related_name="audit_entries", to="chatapp.session",
                    ),
                ),
            ],
        ),
    ]

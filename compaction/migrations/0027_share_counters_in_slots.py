"""New rows get ids in the order of time (chatapp/ids.py); those that are there keep theirs.

A default is nothing to the database. SQLite would copy each table all the same, so that only
Django's own picture of the tables is told.
"""

from django.db import migrations, models

import chatapp.ids

MODELS = ("bulkjob", "compactionrun", "memory", "memoryrun", "memoryversion", "sessionsummary")


class Migration(migrations.Migration):
    dependencies = [
        ("compaction", "0026_complete_bulk_jobs_and_roles"),
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
    ]

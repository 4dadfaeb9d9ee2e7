"""New rows get ids in the order of time (chatapp/ids.py); those that are there keep theirs.

A default is nothing to the database. SQLite would copy each table all the same, so that only
Django's own picture of the tables is told.
"""

from django.db import migrations, models

import chatapp.ids

MODELS = ("apikey", "auditentry", "branch", "importjob", "incident", "message", "session")


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
    ]

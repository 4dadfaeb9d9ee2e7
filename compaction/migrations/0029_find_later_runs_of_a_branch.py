"""What needs a look asks of each failed run whether a later one came: an index answers that.

It takes the place of the foreign key's own, which began with the same column. Django would drop
every index of that column alone, the constraint `run_queued_once` among them.
"""

import django.db.models.deletion
from django.db import migrations, models

from chatapp.database import drop_index_of, make_index_of


def drop(apps, schema_editor):
    drop_index_of(schema_editor, apps.get_model("compaction", "CompactionRun"), "branch")


def make(apps, schema_editor):
    make_index_of(schema_editor, apps.get_model("compaction", "CompactionRun"), "branch")


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0024_find_forks_of_a_branch'),
        ('compaction', '0028_keep_figures_of_sessions'),
    ]

    operations = [
        # The new one first: at no moment is there none.
        migrations.AddIndex(
            model_name='compactionrun',
            index=models.Index(fields=['branch', '-created_at'], name='run_of_branch'),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(drop, make)],
            state_operations=[
                migrations.AlterField(
                    model_name='compactionrun',
                    name='branch',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='chatapp.branch'),
                ),
            ],
        ),
    ]

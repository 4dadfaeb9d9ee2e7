"""Foreign keys whose column begins another index of the same table need none for themselves."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from chatapp.database import drop_index_of, make_index_of

FIELDS = {
    "SessionSummary": ("session",),
    "SessionSummaryMessage": ("summary",),
    "CompactionRun": ("session", "profile"),
    "CompactionStep": ("run",),
    "RecoveryStep": ("session",),
    "Memory": ("owner",),
    "MemoryKey": ("owner",),
    "MemoryRun": ("owner",),
    "MemoryVersion": ("owner",),
}


def drop(apps, schema_editor):
    for name, fields in FIELDS.items():
        drop_index_of(schema_editor, apps.get_model("compaction", name), *fields)


def make(apps, schema_editor):
    for name, fields in FIELDS.items():
        make_index_of(schema_editor, apps.get_model("compaction", name), *fields)


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0021_drop_doubled_indexes'),
        ('compaction', '0024_note_runs_without_gain'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(drop, make)],
            state_operations=[
                migrations.AlterField(
                    model_name='compactionrun',
                    name='profile',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='compaction.compactionprofile'),
                ),
                migrations.AlterField(
                    model_name='compactionrun',
                    name='session',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='chatapp.session'),
                ),
                migrations.AlterField(
                    model_name='compactionstep',
                    name='run',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='compaction.compactionrun'),
                ),
                migrations.AlterField(
                    model_name='memory',
                    name='owner',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='memories', to=settings.AUTH_USER_MODEL),
                ),
                migrations.AlterField(
                    model_name='memorykey',
                    name='owner',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
                ),
                migrations.AlterField(
                    model_name='memoryrun',
                    name='owner',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='memory_runs', to=settings.AUTH_USER_MODEL),
                ),
                migrations.AlterField(
                    model_name='memoryversion',
                    name='owner',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='memory_versions', to=settings.AUTH_USER_MODEL),
                ),
                migrations.AlterField(
                    model_name='recoverystep',
                    name='session',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='recovery_steps', to='chatapp.session'),
                ),
                migrations.AlterField(
                    model_name='sessionsummary',
                    name='session',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='summaries', to='chatapp.session'),
                ),
                migrations.AlterField(
                    model_name='sessionsummarymessage',
                    name='summary',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='links', to='compaction.sessionsummary'),
                ),
            ],
        ),
    ]

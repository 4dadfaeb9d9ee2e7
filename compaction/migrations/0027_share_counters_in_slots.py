"""New rows get ids in the order of time (chatapp/ids.py); those that are there keep theirs.

A default is nothing to the database. SQLite would copy each table all the same, so that only
Django's own picture of the tables is told.

A run keeps the instructions that it carried on from earlier summaries.
Run totals are counted in several rows of a kind (statistics/totals.py); backwards, they are summed.
The jobs of bulk items need no index of their own: two others begin with them.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Min, Sum

import chatapp.ids
from chatapp.database import drop_index_of, make_index_of

MODELS = ("bulkjob", "compactionrun", "memory", "memoryrun", "memoryversion", "sessionsummary")


def sum_up(apps, schema_editor):
    """Make one row of each kind: only one has room without slots."""
    totals = apps.get_model("compaction", "RunTotals").objects.using(schema_editor.connection.alias)
    kinds = totals.order_by().values("status", "reason", "mode").annotate(
        first=Min("pk"),
        all_runs=Sum("runs"), all_seconds=Sum("seconds"), all_tokens=Sum("tokens_saved"),
    )
    for kind in list(kinds):
        of_kind = totals.filter(status=kind["status"], reason=kind["reason"], mode=kind["mode"])
        of_kind.exclude(pk=kind["first"]).delete()
        of_kind.update(
            runs=kind["all_runs"], seconds=kind["all_seconds"], tokens_saved=kind["all_tokens"]
        )


def drop(apps, schema_editor):
    drop_index_of(schema_editor, apps.get_model("compaction", "BulkItem"), "job")


def make(apps, schema_editor):
    make_index_of(schema_editor, apps.get_model("compaction", "BulkItem"), "job")


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
        migrations.AddField(
            model_name="compactionrun",
            name="carried_instructions",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="runtotals",
            name="slot",
            field=models.PositiveSmallIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.RemoveConstraint(model_name="runtotals", name="run_totals_kind"),
        migrations.RunPython(migrations.RunPython.noop, sum_up),
        migrations.AddConstraint(
            model_name="runtotals",
            constraint=models.UniqueConstraint(
                fields=("status", "reason", "mode", "slot"), name="run_totals_kind"
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(drop, make)],
            state_operations=[
                migrations.AlterField(
                    model_name="bulkitem",
                    name="job",
                    field=models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE,
                        related_name="items", to="compaction.bulkjob",
                    ),
                ),
            ],
        ),
    ]

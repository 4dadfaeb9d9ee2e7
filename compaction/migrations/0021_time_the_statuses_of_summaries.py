"""Say who wrote a summary, and since when it counts, was replaced or was taken back."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Min, OuterRef, Q, Subquery


def fill_times(apps: Any, schema_editor: Any) -> None:
    """Write what is known of old rows; what nobody noted stays NULL.

    A summary of a run counted from when it was stored, unless it was made as a draft. One was
    replaced when the first version in its place was stored. When one was taken back, nobody knows.
    """
    summaries = apps.get_model("compaction", "SessionSummary").objects
    rows = summaries.using(schema_editor.connection.alias)
    at_once = rows.filter(run__isnull=False).exclude(Q(status="draft") | Q(reason="ahead"))
    at_once.update(activated_at=F("created_at"))
    first = (
        rows.filter(supersedes=OuterRef("pk"))
        .order_by()
        .values("supersedes")
        .annotate(at=Min("created_at"))
    )
    rows.filter(status="superseded").update(superseded_at=Subquery(first.values("at")))
    rows.filter(status="superseded").update(updated_at=F("superseded_at"))
    rows.filter(status="active").update(updated_at=F("activated_at"))
    rows.filter(status="draft").update(updated_at=F("created_at"))
    if schema_editor.connection.vendor == "postgresql":
        # A row that is changed twice leaves its checks to the end, and no index is made meanwhile.
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0020_hold_what_was_taken_back'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='sessionsummary',
            name='activated_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='sessionsummary',
            name='author',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='sessionsummary',
            name='restored_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='sessionsummary',
            name='superseded_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='sessionsummary',
            name='updated_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.RunPython(fill_times, migrations.RunPython.noop, elidable=True),
    ]

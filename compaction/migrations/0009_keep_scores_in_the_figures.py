from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """What the front page says of quality is rolled up with the other figures of a day."""

    dependencies = [
        ("compaction", "0008_know_where_summaries_come_from"),
    ]

    operations = [
        migrations.AddField(
            model_name="dailyfigures",
            name="scores",
            field=models.JSONField(db_default={}, default=dict),
        ),
    ]

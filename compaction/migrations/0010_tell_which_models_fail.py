from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """The front page says since when compactions by a model fail, and why."""

    dependencies = [
        ("compaction", "0009_keep_scores_in_the_figures"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelbreaker",
            name="failing_since",
            field=models.DateTimeField(
                blank=True,
                help_text="Since when compactions by the model fail; empty while they succeed.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="modelbreaker",
            name="failing_code",
            field=models.CharField(blank=True, db_default="", default="", max_length=80),
        ),
        migrations.AddField(
            model_name="modelbreaker",
            name="failing_run",
            field=models.UUIDField(
                blank=True, editable=False, help_text="The last run that failed.", null=True
            ),
        ),
    ]

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """A plug-in's strategy names its steps as it likes; widening a column rewrites no row."""

    dependencies = [
        ("compaction", "0006_use_standard_terms"),
    ]

    operations = [
        migrations.AlterField(
            model_name="compactionstep",
            name="kind",
            field=models.CharField(max_length=40),
        ),
    ]

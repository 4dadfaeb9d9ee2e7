"""Lines are found by their summary alone: entries that are alike share their room on PostgreSQL."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0031_find_carried_instructions'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='summaryline',
            index=models.Index(fields=['summary'], name='lines_of_summary'),
        ),
        migrations.RemoveIndex(
            model_name='summaryline',
            name='line_of_summary',
        ),
    ]

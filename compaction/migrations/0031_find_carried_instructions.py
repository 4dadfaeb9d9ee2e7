"""A run asks whether its session has instructions to carry on: an index of the few answers that."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0030_find_unjudged_scores'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='sessionsummary',
            index=models.Index(
                condition=models.Q(('instructions__gt', '')),
                fields=['session'],
                name='summary_instructed',
            ),
        ),
    ]

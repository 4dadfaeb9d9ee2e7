"""What needs a look has low scores that nobody has judged, newest first: an index answers that."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0029_find_later_runs_of_a_branch'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='summaryquality',
            index=models.Index(
                condition=models.Q(('verdict', '')),
                fields=['-created_at', 'score'],
                name='quality_new',
            ),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0017_offer_abridged_histories'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='sessionsummary',
            index=models.Index(condition=models.Q(('format_version__gt', 3), ('status', 'active')), fields=['session'], name='summary_of_later_program'),
        ),
    ]

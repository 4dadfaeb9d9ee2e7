from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0012_keep_the_default_of_old_installations'),
    ]

    operations = [
        migrations.AddField(
            model_name='compactionstate',
            name='cache_expires_at',
            field=models.DateTimeField(blank=True, editable=False, help_text="When the server forgets the prompt of the branch's last request.", null=True),
        ),
        migrations.AddField(
            model_name='compactionstate',
            name='covered_chars',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='sessionsummary',
            name='abridged_entries',
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
    ]

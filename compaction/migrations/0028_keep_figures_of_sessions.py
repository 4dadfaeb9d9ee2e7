"""What each session adds to the totals, kept beside what it was worked out from."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0022_let_roles_see_acts_and_originals'),
        ('compaction', '0027_share_counters_in_slots'),
    ]

    operations = [
        migrations.CreateModel(
            name='SessionFigures',
            fields=[
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='figures', serialize=False, to='chatapp.session')),
                ('messages', models.PositiveBigIntegerField(default=0)),
                ('tokens_stored', models.BigIntegerField(default=0)),
                ('tokens_sent', models.BigIntegerField(default=0)),
                ('updated_at', models.DateTimeField()),
                ('request_tokens', models.BigIntegerField(default=0)),
                ('token_total', models.BigIntegerField(default=0)),
                ('cursor', models.BigIntegerField(default=0)),
                ('covered_tokens', models.BigIntegerField(default=0)),
                ('profile', models.CharField(blank=True, default='', max_length=60)),
            ],
            options={
                'verbose_name_plural': 'session figures',
                'db_table': 'compaction_session_figures',
                'default_permissions': (),
            },
        ),
    ]

"""What summaries keep for later passes, where their lines come from, how much they still know."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """New tables, and a column with a default: processes of the version before may go on."""

    dependencies = [
        ('chatapp', '0006_name_learned_limits'),
        ('compaction', '0007_let_strategies_name_their_steps'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SummaryLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField(help_text="The line's place in the summary, from 1.")),
                ('start', models.PositiveIntegerField()),
                ('end', models.PositiveIntegerField()),
                ('origin', models.CharField(choices=[('exact', 'Exact'), ('cited', 'Cited'), ('matched', 'Matched'), ('none', 'None')], max_length=7)),
                ('message_start', models.PositiveIntegerField(default=0)),
                ('message_end', models.PositiveIntegerField(default=0)),
            ],
            options={
                'db_table': 'summary_lines',
            },
        ),
        migrations.CreateModel(
            name='SummaryQuality',
            fields=[
                ('summary', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='quality', serialize=False, to='compaction.sessionsummary')),
                ('version', models.PositiveSmallIntegerField()),
                ('score', models.FloatField()),
                ('yardstick', models.FloatField(default=0.0, help_text='The score of an extractive text of equal size; 0: unknown.')),
                ('cumulative', models.FloatField(blank=True, help_text='Share known of all that was named since the first message.', null=True)),
                ('unsupported_count', models.PositiveIntegerField(default=0)),
                ('rejected', models.PositiveSmallIntegerField(default=0, help_text='How often a text was refused before this one was taken.')),
                ('hindsight', models.FloatField(blank=True, null=True)),
                ('hindsight_facts', models.PositiveIntegerField(default=0)),
                ('hindsight_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('verdict', models.CharField(blank=True, choices=[('good', 'Good'), ('bad', 'Bad')], max_length=4)),
                ('verdict_note', models.TextField(blank=True)),
                ('verdict_at', models.DateTimeField(blank=True, null=True)),
                ('figures', models.JSONField(blank=True, default=dict)),
                ('lost', models.JSONField(blank=True, default=list)),
                ('facts', models.JSONField(blank=True, default=list)),
                ('ignored', models.JSONField(blank=True, default=list, help_text='Keys of lost facts that do not matter.')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name_plural': 'summary qualities',
                'db_table': 'summary_qualities',
            },
        ),
        migrations.CreateModel(
            name='SummaryUnits',
            fields=[
                ('summary', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='units', serialize=False, to='compaction.sessionsummary')),
                ('units', models.JSONField(default=list)),
                ('named_weight', models.FloatField(default=0.0)),
            ],
            options={
                'verbose_name_plural': 'summary units',
                'db_table': 'summary_units',
            },
        ),
        migrations.AddField(
            model_name='compactionstep',
            name='given',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='compactionstep',
            name='code',
            field=models.CharField(blank=True, db_default='', default='', max_length=40),
        ),
        migrations.AlterField(
            model_name='compactionstep',
            name='outcome',
            field=models.CharField(choices=[('ok', 'OK'), ('overflow', 'Too large'), ('truncated', 'Cut off'), ('rejected', 'Rejected'), ('error', 'Error')], max_length=9),
        ),
        # /metrics: the few rejected answers by their reason.
        migrations.AddIndex(
            model_name='compactionstep',
            index=models.Index(condition=models.Q(('outcome', 'rejected')), fields=['code'], name='step_rejected'),
        ),
        migrations.AddField(
            model_name='summaryline',
            name='message',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='summary_lines', to='chatapp.message'),
        ),
        migrations.AddField(
            model_name='summaryline',
            name='summary',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='lines', to='compaction.sessionsummary'),
        ),
        migrations.AddField(
            model_name='summaryquality',
            name='verdict_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        # A summary's lines in order.
        migrations.AddIndex(
            model_name='summaryline',
            index=models.Index(fields=['summary', 'number'], name='line_of_summary'),
        ),
        # What became of a message, and the deletion of messages.
        migrations.AddIndex(
            model_name='summaryline',
            index=models.Index(condition=models.Q(('message__isnull', False)), fields=['message'], name='line_of_message'),
        ),
        # /metrics counts the scores, the list of low ones finds its own.
        migrations.AddIndex(
            model_name='summaryquality',
            index=models.Index(fields=['score'], name='quality_score'),
        ),
    ]

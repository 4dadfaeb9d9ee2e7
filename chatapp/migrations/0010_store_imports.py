"""Imports: a file on its way into sessions, its pieces while it waits, what it became."""

import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0009_store_api_keys'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ImportJob',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('model', models.CharField(default='default', max_length=100)),
                ('size', models.PositiveBigIntegerField(default=0)),
                ('status', models.CharField(choices=[('queued', 'Queued'), ('working', 'Working'), ('done', 'Done'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='queued', max_length=9)),
                ('format', models.CharField(blank=True, default='', max_length=40)),
                ('lines_total', models.PositiveIntegerField(blank=True, null=True)),
                ('conversations_total', models.PositiveIntegerField(blank=True, null=True)),
                ('conversations_done', models.PositiveIntegerField(default=0)),
                ('sessions_made', models.PositiveIntegerField(default=0)),
                ('messages_added', models.PositiveBigIntegerField(default=0)),
                ('problems', models.JSONField(blank=True, default=list)),
                ('problems_left_out', models.PositiveIntegerField(default=0)),
                ('error_code', models.CharField(blank=True, default='', max_length=40)),
                ('error', models.TextField(blank=True, default='')),
                ('worker', models.UUIDField(blank=True, editable=False, null=True)),
                ('lease_expires_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0, editable=False)),
                ('seconds', models.FloatField(default=0.0)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('queued_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('started_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('finished_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='imports', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'import',
                'db_table': 'import_jobs',
            },
        ),
        migrations.CreateModel(
            name='ImportedSession',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('messages_added', models.PositiveIntegerField(default=0)),
                ('created', models.BooleanField(default=True)),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='imports', to='chatapp.session')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='chatapp.importjob')),
            ],
            options={
                'db_table': 'imported_sessions',
            },
        ),
        migrations.CreateModel(
            name='ImportPiece',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('content', models.BinaryField()),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pieces', to='chatapp.importjob')),
            ],
            options={
                'db_table': 'import_pieces',
            },
        ),
        migrations.AddIndex(
            model_name='importjob',
            index=models.Index(fields=['owner', '-created_at', '-id'], name='import_owner_newest'),
        ),
        migrations.AddIndex(
            model_name='importjob',
            index=models.Index(fields=['-created_at', '-id'], name='import_newest'),
        ),
        migrations.AddIndex(
            model_name='importjob',
            index=models.Index(condition=models.Q(('status__in', ['queued', 'working'])), fields=['owner'], name='import_under_way'),
        ),
        migrations.AddIndex(
            model_name='importjob',
            index=models.Index(fields=['finished_at'], name='import_finished'),
        ),
        migrations.AddConstraint(
            model_name='importedsession',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='import_result_place'),
        ),
        migrations.AddConstraint(
            model_name='importpiece',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='import_piece_place'),
        ),
    ]

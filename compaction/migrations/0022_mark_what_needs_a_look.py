"""Marks of what needs a look, the indexes of its kinds, and what the four roles may do here."""

import django.db.models.deletion
from django.conf import settings
from django.contrib.auth.management import create_permissions
from django.db import migrations, models

READING = ("view_compactionprofile", "view_compactionrun", "view_compactionstate",
           "view_compactionstep", "view_memory", "view_memoryrun", "view_memoryversion",
           "view_modelbreaker", "view_sessionsummary", "view_sessionsummarymessage",
           "view_workerheartbeat")
EDITING = ("add_compactionrun", "change_compactionrun", "change_compactionstate",
           "change_lookmark", "change_memory", "change_memoryversion", "change_modelbreaker",
           "change_sessionsummary", "delete_memory")
RULING = ("add_compactionprofile", "change_compactionprofile")
ROLES = {
    "Palimpsest reader without texts": READING,
    "Palimpsest reader": READING,
    "Palimpsest editor": READING + EDITING,
    "Palimpsest admin": READING + EDITING + RULING,
}


def permissions_of(apps, schema_editor):
    """Return the app's permissions, made now: Django makes them after the last migration."""
    config, alias = apps.get_app_config("compaction"), schema_editor.connection.alias
    had = getattr(config, "models_module", None)
    config.models_module = had or True
    try:
        create_permissions(config, verbosity=0, using=alias, apps=apps)
    finally:
        config.models_module = had
    found = apps.get_model("auth", "Permission").objects.using(alias)
    return found.filter(content_type__app_label="compaction")


def extend_roles(apps, schema_editor):
    """Give the roles what they may do with summaries, runs, profiles, memories and marks."""
    own = permissions_of(apps, schema_editor)
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    # A group of such a name that chatapp did not make is none of ours.
    for group in groups.filter(name__in=ROLES, permissions__codename="view_session"):
        group.permissions.add(*own.filter(codename__in=ROLES[group.name]))


def shrink_roles(apps, schema_editor):
    """Take that from the roles again."""
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    for group in groups.filter(name__in=ROLES):
        own = group.permissions.filter(content_type__app_label="compaction")
        group.permissions.remove(*own)


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0018_read_texts_and_roles'),
        ('compaction', '0021_time_the_statuses_of_summaries'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='LookMark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=40)),
                ('model', models.CharField(blank=True, default='', max_length=100)),
                ('done_at', models.DateTimeField(blank=True, null=True)),
                ('hidden_until', models.DateTimeField(blank=True, null=True)),
                ('marked_at', models.DateTimeField(blank=True, null=True)),
                ('alerted_at', models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                'db_table': 'look_marks',
                'default_permissions': ('change',),
            },
        ),
        migrations.AddIndex(
            model_name='compactionrun',
            index=models.Index(condition=models.Q(('status', 'failed')), fields=['-finished_at', 'branch'], name='run_failed'),
        ),
        migrations.AddIndex(
            model_name='compactionrun',
            index=models.Index(condition=models.Q(('status', 'succeeded'), ('truncated', True)), fields=['-finished_at', 'branch'], name='run_truncated'),
        ),
        migrations.AddField(
            model_name='lookmark',
            name='branch',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='chatapp.branch'),
        ),
        migrations.AddField(
            model_name='lookmark',
            name='marked_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='lookmark',
            index=models.Index(condition=models.Q(('marked_at__isnull', False)), fields=['-marked_at', '-id'], name='look_mark_newest'),
        ),
        migrations.AddConstraint(
            model_name='lookmark',
            constraint=models.UniqueConstraint(condition=models.Q(('branch__isnull', False)), fields=('kind', 'branch'), name='look_mark_of_branch'),
        ),
        migrations.AddConstraint(
            model_name='lookmark',
            constraint=models.UniqueConstraint(condition=models.Q(('branch__isnull', True)), fields=('kind', 'model'), name='look_mark_of_model'),
        ),
        migrations.RunPython(extend_roles, shrink_roles),
    ]

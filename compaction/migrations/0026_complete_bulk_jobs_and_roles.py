"""Who rolled a bulk job back; and the roles see the tables that came after they were made.

An editor could start a bulk job and was then refused its page.
"""

import django.db.models.deletion
from django.conf import settings
from django.contrib.auth.management import create_permissions
from django.db import migrations, models

READING = ("view_bulkitem", "view_bulkjob", "view_dailyfigures", "view_recoverystep",
           "view_runtotals")
ROLES = ("Palimpsest reader without texts", "Palimpsest reader", "Palimpsest editor",
         "Palimpsest admin")


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
    return found.filter(content_type__app_label="compaction", codename__in=READING)


def groups_of(apps, schema_editor):
    """Return the roles; a group of such a name that chatapp did not make is none of ours."""
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    return groups.filter(name__in=ROLES, permissions__codename="view_session").distinct()


def extend_roles(apps, schema_editor):
    """Let the roles see bulk jobs, totals, figures and the steps of recoveries."""
    found = permissions_of(apps, schema_editor)
    for group in groups_of(apps, schema_editor):
        group.permissions.add(*found)


def shrink_roles(apps, schema_editor):
    """Take that from the roles again."""
    for group in groups_of(apps, schema_editor):
        group.permissions.remove(*group.permissions.filter(
            content_type__app_label="compaction", codename__in=READING
        ))


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0025_drop_doubled_indexes'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='bulkjob',
            name='rolled_back_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.RunPython(extend_roles, shrink_roles),
    ]

"""The roles see the audit log and the originals of results that were stored cut.

The tables came after the roles, or their pages did; whose texts are texts stays hidden from who may
not read any.
"""

from django.contrib.auth.management import create_permissions
from django.db import migrations

READING = ("view_auditentry", "view_messageoriginal")
ROLES = ("Palimpsest reader without texts", "Palimpsest reader", "Palimpsest editor",
         "Palimpsest admin")


def permissions_of(apps, schema_editor):
    """Return the app's permissions, made now: Django makes them after the last migration."""
    config, alias = apps.get_app_config("chatapp"), schema_editor.connection.alias
    had = getattr(config, "models_module", None)
    config.models_module = had or True
    try:
        create_permissions(config, verbosity=0, using=alias, apps=apps)
    finally:
        config.models_module = had
    found = apps.get_model("auth", "Permission").objects.using(alias)
    return found.filter(content_type__app_label="chatapp", codename__in=READING)


def groups_of(apps, schema_editor):
    """Return the roles; a group of such a name that may see no sessions is none of ours."""
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    return groups.filter(name__in=ROLES, permissions__codename="view_session").distinct()


def extend_roles(apps, schema_editor):
    """Let the roles see both."""
    found = permissions_of(apps, schema_editor)
    for group in groups_of(apps, schema_editor):
        group.permissions.add(*found)


def shrink_roles(apps, schema_editor):
    """Take that from the roles again."""
    for group in groups_of(apps, schema_editor):
        group.permissions.remove(*group.permissions.filter(
            content_type__app_label="chatapp", codename__in=READING
        ))


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('contenttypes', '0002_remove_content_type_name'),
        ('chatapp', '0021_drop_doubled_indexes'),
    ]

    operations = [
        migrations.RunPython(extend_roles, shrink_roles),
    ]

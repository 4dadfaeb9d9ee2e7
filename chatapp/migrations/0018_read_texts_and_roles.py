"""The permission to read texts, for who could read them before; four roles; an index of overflows.

Before, the permission to view messages let people read texts. Groups and people that hold it get
the new one, so that nobody loses what they could do. The roles are groups: another app adds its own
permissions to them. A group that has such a name already is left as it is.
"""

from django.contrib.auth.management import create_permissions
from django.db import migrations, models

READING = ("view_apikey", "view_branch", "view_importjob", "view_incident", "view_learnedlimits",
           "view_message", "view_session")
TEXTS = ("read_texts",)
EDITING = ("change_branch", "change_message", "change_session")
RULING = ("add_apikey", "change_apikey", "delete_learnedlimits", "erase_user")
ROLES = {
    "Palimpsest reader without texts": READING,
    "Palimpsest reader": READING + TEXTS,
    "Palimpsest editor": READING + TEXTS + EDITING,
    "Palimpsest admin": READING + TEXTS + EDITING + RULING,
}
SEES_PEOPLE = "Palimpsest admin"


def permissions_of(apps, schema_editor, label):
    """Return an app's permissions, made now: Django makes them after the last migration."""
    config, alias = apps.get_app_config(label), schema_editor.connection.alias
    had = getattr(config, "models_module", None)
    config.models_module = had or True
    try:
        create_permissions(config, verbosity=0, using=alias, apps=apps)
    finally:
        config.models_module = had
    found = apps.get_model("auth", "Permission").objects.using(alias)
    return found.filter(content_type__app_label=label)


def add_roles(apps, schema_editor):
    """Let readers of before go on reading, and make the four groups."""
    alias = schema_editor.connection.alias
    own = permissions_of(apps, schema_editor, "chatapp")
    before, texts = own.get(codename="view_message"), own.get(codename="read_texts")
    for holder in before.group_set.all():
        holder.permissions.add(texts)
    for holder in before.user_set.all():
        holder.user_permissions.add(texts)
    groups = apps.get_model("auth", "Group").objects.using(alias)
    for name, codenames in ROLES.items():
        group, is_new = groups.get_or_create(name=name)
        if is_new:
            group.permissions.add(*own.filter(codename__in=codenames))
    people = permissions_of(apps, schema_editor, "auth").filter(codename="view_user")
    groups.get(name=SEES_PEOPLE).permissions.add(*people)


def remove_roles(apps, schema_editor):
    """Take the groups and the permission away; who held it keeps that to view messages."""
    alias = schema_editor.connection.alias
    apps.get_model("auth", "Group").objects.using(alias).filter(name__in=ROLES).delete()
    own = apps.get_model("auth", "Permission").objects.using(alias)
    own.filter(content_type__app_label="chatapp", codename="read_texts").delete()


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('contenttypes', '0002_remove_content_type_name'),
        ('chatapp', '0017_keep_an_audit_log'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='session',
            options={'permissions': [('erase_user', 'Can erase a person with all they wrote'), ('read_texts', 'Can read texts')]},
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('code', 'context_overflow'), ('kind', 'error')), fields=['-created_at', 'branch'], name='incident_overflow'),
        ),
        migrations.RunPython(add_roles, remove_roles),
    ]

from django.db import migrations, models

from compaction.conf import compaction_settings

# What every installation had before; its row is the first version, without parameters of its own.
OLD_DEFAULT = "bisect"


def keep_the_default(apps, schema_editor):
    """Mark the profile that counts so far, where there are sessions; otherwise let it go.

    A database without sessions is a new installation: nobody has looked at a compaction of it.
    One that a variable names counts as long as none is marked.
    """
    alias = schema_editor.connection.alias
    profiles = apps.get_model("compaction", "CompactionProfile").objects.using(alias)
    sessions = apps.get_model("chatapp", "Session").objects.using(alias)
    current = profiles.filter(is_current=True)
    old = current.filter(name=OLD_DEFAULT)
    if not sessions.exists():
        old.filter(version=1, parameters={}).update(is_default=False)
        return
    named = current.filter(name=compaction_settings.default_profile)
    if not current.filter(is_default=True).exists() and not named.exists():
        old.update(is_default=True)


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0013_write_notes'),
        ('compaction', '0011_summarise_branches'),
    ]

    operations = [
        migrations.AlterField(
            model_name='compactionprofile',
            name='base',
            field=models.CharField(choices=[('bisect', 'bisect'), ('sliding_window', 'sliding_window'), ('checkpoint', 'checkpoint'), ('balanced', 'balanced')], default='bisect', help_text='The preset whose values count where this profile sets none.', max_length=30),
        ),
        migrations.RunPython(keep_the_default, migrations.RunPython.noop),
    ]

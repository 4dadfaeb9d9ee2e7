"""What a server's refusals taught is called learned limits; it was called a lesson."""

from django.db import migrations, models


def rename_permissions(apps, schema_editor, *, old="lesson", new="learnedlimits"):
    """Let groups and users keep what they may do: Django renames a model's type, not these."""
    permissions = apps.get_model("auth", "Permission").objects
    for action in ("add", "change", "delete", "view"):
        permissions.filter(content_type__app_label="chatapp", codename=f"{action}_{old}").update(
            codename=f"{action}_{new}"
        )


def name_them_back(apps, schema_editor):
    """Undo rename_permissions."""
    rename_permissions(apps, schema_editor, old="learnedlimits", new="lesson")


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("chatapp", "0005_fill_lineage"),
    ]

    operations = [
        migrations.RenameModel("Lesson", "LearnedLimits"),
        migrations.AlterModelOptions(
            "LearnedLimits",
            {"verbose_name": "learned limits", "verbose_name_plural": "learned limits"},
        ),
        migrations.AlterModelTable("LearnedLimits", "learned_limits"),
        migrations.RemoveConstraint("LearnedLimits", "lesson_of_model"),
        migrations.AddConstraint(
            "LearnedLimits",
            models.UniqueConstraint(fields=["server", "name"], name="limits_of_model"),
        ),
        migrations.RunPython(rename_permissions, name_them_back, elidable=True),
    ]

"""Rungs are recovery steps, archives fallback digests; a branch is checked, not looked at."""

from django.db import migrations, models

RENAMED = {
    "archive_after_failures": "digest_after_failures",
    "archive_tokens": "digest_tokens",
}


def rename_parameters(apps, schema_editor):
    """Give stored profiles the new names of two parameters; there are few of them."""
    profiles = apps.get_model("compaction", "CompactionProfile").objects
    for profile in profiles.only("parameters"):
        named = {RENAMED.get(name, name): value for name, value in profile.parameters.items()}
        if named != profile.parameters:
            profiles.filter(pk=profile.pk).update(parameters=named)


def name_them_back(apps, schema_editor):
    """Undo rename_parameters."""
    old = {new: name for name, new in RENAMED.items()}
    profiles = apps.get_model("compaction", "CompactionProfile").objects
    for profile in profiles.only("parameters"):
        named = {old.get(name, name): value for name, value in profile.parameters.items()}
        if named != profile.parameters:
            profiles.filter(pk=profile.pk).update(parameters=named)


def rename_permissions(apps, schema_editor, *, old="recoveryrung", new="recoverystep"):
    """Let groups and users keep what they may do: Django renames a model's type, not these."""
    permissions = apps.get_model("auth", "Permission").objects
    for action in ("add", "change", "delete", "view"):
        permissions.filter(
            content_type__app_label="compaction", codename=f"{action}_{old}"
        ).update(codename=f"{action}_{new}")


def name_permissions_back(apps, schema_editor):
    """Undo rename_permissions."""
    rename_permissions(apps, schema_editor, old="recoverystep", new="recoveryrung")


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("chatapp", "0006_name_learned_limits"),
        ("compaction", "0005_find_summaries_of_deep_forks"),
    ]

    operations = [
        # Their conditions name columns that get new names.
        migrations.RemoveIndex("CompactionState", "state_look_again"),
        migrations.RemoveIndex("SessionSummary", "summary_archive"),
        migrations.RemoveConstraint("RecoveryRung", "rung_order"),
        migrations.RenameModel("RecoveryRung", "RecoveryStep"),
        migrations.AlterModelTable("RecoveryStep", "recovery_steps"),
        migrations.RenameField("RecoveryStep", "move", "action"),
        migrations.RenameIndex(
            "RecoveryStep", old_name="rung_of_session", new_name="recovery_of_session"
        ),
        migrations.AddConstraint(
            "RecoveryStep",
            models.UniqueConstraint(fields=["recovery", "order"], name="recovery_step_order"),
        ),
        migrations.AlterField(
            "RecoveryStep",
            "session",
            models.ForeignKey(
                on_delete=models.CASCADE, related_name="recovery_steps", to="chatapp.session"
            ),
        ),
        migrations.AlterField(
            "RecoveryStep",
            "branch",
            models.ForeignKey(
                on_delete=models.CASCADE, related_name="recovery_steps", to="chatapp.branch"
            ),
        ),
        migrations.AlterField(
            "RecoveryStep",
            "run",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=models.SET_NULL,
                related_name="recovery_steps",
                to="compaction.compactionrun",
            ),
        ),
        migrations.RenameField("CompactionState", "look_again_at", "next_check_at"),
        migrations.RenameField("CompactionState", "pending", "recheck_requested"),
        migrations.RenameField("SessionSummary", "archived", "is_digest"),
        migrations.AddIndex(
            "CompactionState",
            models.Index(
                condition=models.Q(next_check_at__isnull=False),
                fields=["next_check_at"],
                name="state_next_check",
            ),
        ),
        migrations.AddIndex(
            "SessionSummary",
            models.Index(
                condition=models.Q(status="active", is_digest=True),
                fields=["branch", "-covers_through"],
                name="summary_digest",
            ),
        ),
        migrations.RunPython(rename_parameters, name_them_back, elidable=True),
        migrations.RunPython(rename_permissions, name_permissions_back, elidable=True),
    ]

"""What a turn tried after a refusal is a recovery step; it was called a rung of a ladder."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chatapp", "0005_fill_lineage"),
        ("compaction", "0005_find_summaries_of_deep_forks"),
    ]

    operations = [
        migrations.RenameModel("RecoveryRung", "RecoveryStep"),
        migrations.RenameField("RecoveryStep", "move", "action"),
        migrations.RemoveConstraint("RecoveryStep", "rung_order"),
        migrations.RenameIndex(
            "RecoveryStep", old_name="rung_of_session", new_name="recovery_of_session"
        ),
    ]

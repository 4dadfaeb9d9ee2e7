"""What a server's refusals taught is called learned limits; it was called a lesson."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chatapp", "0005_fill_lineage")]

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
    ]

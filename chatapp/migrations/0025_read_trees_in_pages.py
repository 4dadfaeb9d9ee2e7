"""An index of where branches leave others, so that a tree is read in pages."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chatapp", "0024_find_forks_of_a_branch")]

    operations = [
        migrations.AddIndex(
            model_name="branch",
            index=models.Index(
                fields=["session", "fork_position", "parent"], name="branch_fork_place"
            ),
        ),
    ]

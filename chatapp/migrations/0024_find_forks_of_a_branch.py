"""An index of the forks of a branch by their place, instead of one of its children alone."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chatapp", "0023_make_ids_in_order_of_time")]

    operations = [
        # First: what looks for children has an index at any time.
        migrations.AddIndex(
            model_name="branch",
            index=models.Index(
                fields=["parent", "fork_position", "created_at", "id"], name="branch_of_parent"
            ),
        ),
        migrations.AlterField(
            model_name="branch",
            name="parent",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="children",
                to="chatapp.branch",
            ),
        ),
    ]

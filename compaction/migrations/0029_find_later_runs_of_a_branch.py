"""What needs a look asks of each failed run whether a later one came: an index answers that.

It takes the place of the foreign key's own, which began with the same column.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0024_find_forks_of_a_branch'),
        ('compaction', '0028_keep_figures_of_sessions'),
    ]

    operations = [
        # The new one first: at no moment is there none.
        migrations.AddIndex(
            model_name='compactionrun',
            index=models.Index(fields=['branch', '-created_at'], name='run_of_branch'),
        ),
        migrations.AlterField(
            model_name='compactionrun',
            name='branch',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='chatapp.branch'),
        ),
    ]

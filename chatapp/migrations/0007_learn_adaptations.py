"""What refusals that are not about size taught is remembered, of a server and of a session."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0006_name_learned_limits'),
    ]

    operations = [
        migrations.AddField(
            model_name='learnedlimits',
            name='adaptations',
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='learnedlimits',
            name='configured_entry',
            field=models.CharField(blank=True, db_default='', default='', max_length=64),
        ),
        migrations.AddField(
            model_name='session',
            name='adaptations',
            field=models.JSONField(blank=True, db_default={}, default=dict, editable=False),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("turn_expires_at__isnull", False)),
                fields=["owner", "turn_expires_at"],
                name="session_turns_under_way",
            ),
        ),
    ]

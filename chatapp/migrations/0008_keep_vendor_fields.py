"""What a server put beside its answer and wants back is kept with the row."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chatapp", "0007_learn_adaptations"),
    ]

    operations = [
        migrations.AddField(
            model_name="message",
            name="vendor",
            field=models.JSONField(blank=True, null=True),
        ),
    ]

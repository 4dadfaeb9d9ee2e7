"""How many bytes of a message's parts are in files; those that are stored have none."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chatapp", "0010_store_imports"),
    ]

    operations = [
        migrations.AddField(
            model_name="message",
            name="parts_bytes",
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("parts_bytes__gt", 0)),
                fields=["session"],
                name="message_part_files",
            ),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0014_turn_imported_summaries_into_notes'),
    ]

    operations = [
        migrations.AddField(
            model_name='branch',
            name='char_total',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='message',
            name='chars',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='message',
            name='chars_through',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]

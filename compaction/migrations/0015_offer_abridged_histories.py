from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0014_fill_covered_characters'),
    ]

    operations = [
        migrations.AlterField(
            model_name='compactionprofile',
            name='base',
            field=models.CharField(choices=[('bisect', 'bisect'), ('sliding_window', 'sliding_window'), ('checkpoint', 'checkpoint'), ('abridged', 'abridged'), ('balanced', 'balanced')], default='bisect', help_text='The preset whose values count where this profile sets none.', max_length=30),
        ),
    ]

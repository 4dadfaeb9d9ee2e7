from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction', '0016_call_no_input_nothing_to_do'),
    ]

    operations = [
        migrations.AlterField(
            model_name='compactionprofile',
            name='base',
            field=models.CharField(choices=[('bisect', 'bisect'), ('sliding_window', 'sliding_window'), ('checkpoint', 'checkpoint'), ('abridged', 'abridged'), ('balanced', 'balanced')], default='bisect', help_text='The preset whose values count where this profile sets none.', max_length=30),
        ),
    ]

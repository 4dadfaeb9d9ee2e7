"""Foreign keys whose column begins another index of the same table need none for themselves."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from chatapp.database import drop_index_of, make_index_of

FIELDS = {
    "Session": ("owner",),
    "Branch": ("session",),
    "Message": ("branch",),
    "Incident": ("session",),
}


def drop(apps, schema_editor):
    for name, fields in FIELDS.items():
        drop_index_of(schema_editor, apps.get_model("chatapp", name), *fields)


def make(apps, schema_editor):
    for name, fields in FIELDS.items():
        make_index_of(schema_editor, apps.get_model("chatapp", name), *fields)


class Migration(migrations.Migration):

    dependencies = [
        ('chatapp', '0020_write_requests_down'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(drop, make)],
            state_operations=[
                migrations.AlterField(
                    model_name='branch',
                    name='session',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='branches', to='chatapp.session'),
                ),
                migrations.AlterField(
                    model_name='incident',
                    name='session',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='chatapp.session'),
                ),
                migrations.AlterField(
                    model_name='message',
                    name='branch',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='chatapp.branch'),
                ),
                migrations.AlterField(
                    model_name='session',
                    name='owner',
                    field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='chat_sessions', to=settings.AUTH_USER_MODEL),
                ),
            ],
        ),
    ]

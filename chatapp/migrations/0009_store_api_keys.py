"""API keys, stored as hashes; the tokens of rest_framework.authtoken become keys.

Tokens were stored in clear text. Each becomes a key with the scopes it had, read and write, which
opens the same with the same secret; then the table with the clear texts goes. The app is not
installed any more, so its table is read as it is.
"""

import hashlib
import uuid

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

TOKENS = "authtoken_token"
PREFIX_CHARS = 6
BATCH = 1_000


def take_over_tokens(apps, schema_editor):
    connection = schema_editor.connection
    if TOKENS not in connection.introspection.table_names():
        return
    ApiKey = apps.get_model("chatapp", "ApiKey")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT key, user_id, created FROM {TOKENS}")
        rows = cursor.fetchall()
    to_time = _from_text if connection.vendor == "sqlite" else (lambda created: created)
    keys = [
        ApiKey(
            owner_id=user_id,
            name="Token of an earlier version",
            prefix=key[:PREFIX_CHARS],
            digest=hashlib.sha256(key.encode()).hexdigest(),
            scopes=["read", "write"],
            created_at=to_time(created),
        )
        for key, user_id, created in rows
    ]
    ApiKey.objects.bulk_create(keys, batch_size=BATCH)
    if connection.vendor == "postgresql":
        # Checks of keys that wait for the transaction's end would hold the tables till then.
        connection.check_constraints()
    schema_editor.execute(f"DROP TABLE {TOKENS}")


def _from_text(created):
    """SQLite returns times as they are stored: text, in UTC."""
    from datetime import UTC, datetime

    if isinstance(created, str):
        created = datetime.fromisoformat(created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("chatapp", "0008_keep_vendor_fields"),
    ]

    operations = [
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(editable=False, max_length=11)),
                ("digest", models.CharField(editable=False, max_length=64)),
                ("scopes", models.JSONField(default=list)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_keys",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "db_table": "api_keys",
                "indexes": [
                    models.Index(fields=["-created_at", "-id"], name="api_key_newest"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("digest",), name="api_key_digest"),
                ],
            },
        ),
        migrations.AlterModelOptions(
            name="session",
            options={"permissions": [("erase_user", "Can erase a person with all they wrote")]},
        ),
        migrations.RunPython(take_over_tokens, migrations.RunPython.noop),
    ]

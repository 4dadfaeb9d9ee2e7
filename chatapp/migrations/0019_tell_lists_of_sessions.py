"""Titles, sizes and orders of sessions, so that a list of all of them reads no message."""

from django.db import migrations, models
from django.db.models import F, OuterRef, Subquery
from django.db.models.functions import Coalesce, Left

from chatapp.titles import LOOKED_AT_CHARS, first_words

BATCH = 500


def fill(apps, schema_editor):
    """Give sessions without a title the first words of their conversation, and all of them a size.

    The size is that of the active branch: prompt and summaries come in with the next answer.
    """
    sessions = apps.get_model("chatapp", "Session").objects
    messages = apps.get_model("chatapp", "Message").objects
    branches = apps.get_model("chatapp", "Branch").objects
    size = branches.filter(pk=OuterRef("active_branch")).values("token_total")
    asked = messages.filter(session=OuterRef("pk"), role="user", kind="message")
    opening = asked.order_by("position").values(start=Left("content", LOOKED_AT_CHARS + 1))
    last = None
    while True:
        rows = sessions.order_by("pk")
        rows = rows.filter(pk__gt=last) if last is not None else rows
        keys = list(rows.values_list("pk", flat=True)[:BATCH])
        if not keys:
            return
        last = keys[-1]
        batch = sessions.filter(pk__in=keys)
        batch.update(request_tokens=Coalesce(Subquery(size), F("request_tokens")))
        untitled = batch.filter(title="").annotate(start=Subquery(opening.values("start")[:1]))
        for key, start in list(untitled.values_list("pk", "start")):
            if title := first_words(start or ""):
                sessions.filter(pk=key, title="").update(title=title)


class Migration(migrations.Migration):
    dependencies = [("chatapp", "0018_read_texts_and_roles")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="request_tokens",
            field=models.BigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["-updated_at", "-id"], name="session_last_active"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["model", "-updated_at", "-id"], name="session_of_model"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["-request_tokens", "-id"], name="session_largest"),
        ),
        # What was filled in stays when it is taken back: a title says no less than none.
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]

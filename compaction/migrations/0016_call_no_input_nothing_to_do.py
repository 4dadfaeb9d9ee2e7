from django.db import migrations

# Both codes said that no message was there to summarise; programs now look for one.
OLD, NEW = "nothing_to_compact", "nothing_to_do"
BATCH = 500


def use_one_code(apps, schema_editor):
    """Give runs that found nothing to summarise the code that such runs get now, in batches."""
    Run = apps.get_model("compaction", "CompactionRun")
    runs = Run.objects.using(schema_editor.connection.alias)
    # Their ids first: the table has no index by code, so that each look at it reads all of it.
    ids = list(runs.filter(error_code=OLD).values_list("pk", flat=True))
    for start in range(0, len(ids), BATCH):
        runs.filter(pk__in=ids[start : start + BATCH]).update(error_code=NEW)


class Migration(migrations.Migration):

    dependencies = [
        ("compaction", "0015_count_what_prompt_caches_held"),
    ]

    operations = [
        # Runs of both codes are one from here on, so there is no way back to two.
        migrations.RunPython(use_one_code, migrations.RunPython.noop),
    ]

"""The Django app that keeps conversations inside the window."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class CompactionConfig(AppConfig):
    """Summaries, runs, profiles, and the context backend that uses them."""

    name = "compaction"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Compaction"

    def ready(self) -> None:
        """Join chatapp; register checks and listeners; install what is missing after migrating."""
        from chatapp.extensions import Extension, register
        from compaction import checks, conf, listeners  # noqa: F401
        from compaction.monitoring import health
        from compaction.runs import queue, takeover  # noqa: F401
        from compaction.runs.switching import switch_of
        from compaction.selectors import tree_marks
        from compaction.summaries.transfer import ProfilePart, SummariesPart

        # Reads the settings: a variable that cannot be used stops the start, not the first run.
        conf.use_plugins()
        register(
            Extension(
                name="compaction",
                api_urls="compaction.api.urls",
                urls="compaction.urls",
                stream_events="compaction.api.stream_events.STREAM_EVENTS",
                readiness={"broker": health.broker, "queue": health.queue},
                admin="compaction.admin.ADMIN",
                parts={"profile": ProfilePart(), "summaries": SummariesPart()},
                tree_marks=tree_marks,
                switch_under_way=switch_of,
            )
        )
        queue.watch_workers()

        post_migrate.connect(listeners.install, sender=self, dispatch_uid="compaction.listeners")

"""The Django app that keeps conversations inside the window."""

from typing import Any
from uuid import UUID

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string


def _part(name: str) -> Any:
    """Return what exports and imports of sessions hold of this app, made at its first use."""
    return SimpleLazyObject(lambda: import_string(f"compaction.summaries.transfer.{name}")())


def _switch_of(session_id: UUID) -> Any:
    return import_string("compaction.runs.switching.switch_of")(session_id)


class CompactionConfig(AppConfig):
    """Summaries, runs, profiles, and the context backend that uses them."""

    name = "compaction"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Compaction"

    def ready(self) -> None:
        """Join chatapp; register checks and listeners; install what is missing after migrating.

        What makes and stores summaries is imported by who first needs it: most commands do not.
        """
        from chatapp.extensions import Extension, register
        from compaction import checks, conf, listeners  # noqa: F401
        from compaction.monitoring import health
        from compaction.runs import queue
        from compaction.selectors import tree_marks

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
                parts={"profile": _part("ProfilePart"), "summaries": _part("SummariesPart")},
                tree_marks=tree_marks,
                switch_under_way=_switch_of,
            )
        )
        queue.watch_workers()

        post_migrate.connect(listeners.install, sender=self, dispatch_uid="compaction.listeners")

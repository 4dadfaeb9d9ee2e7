"""The Django app that holds the conversation."""

from django.apps import AppConfig


class ChatappConfig(AppConfig):
    """Conversations, turns, model calls and their REST API."""

    name = "chatapp"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Conversations"

    def ready(self) -> None:
        """Register the system checks; note log-ins, and what becomes of the files of parts."""
        from chatapp import checks, login  # noqa: F401
        from chatapp.transcript import part_files  # noqa: F401

"""The Django app that holds the conversation."""

from django.apps import AppConfig


class ChatappConfig(AppConfig):
    """Conversations, turns, model calls and their REST API."""

    name = "chatapp"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Conversations"

    def ready(self) -> None:
        """Register the system checks."""
        from chatapp import checks  # noqa: F401

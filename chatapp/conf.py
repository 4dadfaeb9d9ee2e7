"""`chatapp_settings`: the CHATAPP setting, checked and frozen; read anew when a test changes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

T = TypeVar("T")


class LazySettings(Generic[T]):
    """A namespaced settings dict as a frozen dataclass, read at first use.

    Keys are the dataclass's field names in upper case; one that nobody knows is refused. When a
    test overrides the setting, it is read again.
    """

    def __init__(self, name: str, shape: type[T]) -> None:
        self._name = name
        self._shape = shape
        self._current: T | None = None
        setting_changed.connect(self._forget, dispatch_uid=f"settings {name}")

    def __getattr__(self, attribute: str) -> Any:
        if self._current is None:
            self._current = self._read(getattr(settings, self._name, {}))
        return getattr(self._current, attribute)

    def _read(self, values: Mapping[str, Any]) -> T:
        known = {item.name.upper() for item in fields(self._shape)}  # type: ignore[arg-type]
        unknown = sorted(set(values) - known)
        if unknown:
            raise ImproperlyConfigured(
                f"{self._name} has keys that nothing reads: {', '.join(unknown)}. "
                f"Known keys are {', '.join(sorted(known))}."
            )
        return self._shape(**{key.lower(): value for key, value in values.items()})

    def _forget(self, *, setting: str, **kwargs: Any) -> None:
        if setting == self._name:
            self._current = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatappSettings:
    """CHATAPP with its defaults; names are the setting's keys in lower case."""

    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    context: Mapping[str, Any] = field(
        default_factory=lambda: {
            "BACKEND": "chatapp.context.backend.FullHistoryBackend",
            "OPTIONS": {},
        }
    )
    token_counter: str = "auto"  # noqa: S105  # tokens of text
    encodings_dir: Path = Path("var/encodings")
    max_message_chars: int = 2_000_000
    max_messages_per_request: int = 500
    max_import_bytes: int = 50_000_000
    max_body_bytes: int = 20_000_000
    turn_seconds: int = 300
    model_timeout_seconds: int = 120
    request_threads: int = 64
    stream_threads: int = 32
    heartbeat_seconds: int = 15
    overflow_wordings: tuple[str, ...] = ()


chatapp_settings: LazySettings[ChatappSettings] = LazySettings("CHATAPP", ChatappSettings)

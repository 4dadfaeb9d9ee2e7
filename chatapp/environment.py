"""Environment variables, read strictly: what cannot be meant is refused with a sentence."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off", ""), False),
}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


class Environment(environ.FileAwareEnv):
    """Variables by name, or by NAME_FILE: the path of a file that holds the value.

    Every method raises ImproperlyConfigured where a value cannot be used.
    """

    def get_value(self, var: str, cast: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the value of a variable; all the typed methods come through here."""
        try:
            return super().get_value(var, cast, *args, **kwargs)
        except (OSError, UnicodeError) as error:
            raise ImproperlyConfigured(
                f"{var}_FILE names a file that cannot be read: {error}."
            ) from error
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{var} must be {_KINDS[cast]}, not {self.ENVIRON[var]!r}."
            ) from error

    @classmethod
    def parse_value(cls, value: Any, cast: Any) -> Any:
        """Return a text as what it must be; raise ValueError instead of guessing."""
        if cast is bool and value.strip().lower() not in BOOLEANS:
            raise ValueError(value)
        if cast is bool:
            return BOOLEANS[value.strip().lower()]
        if cast is float:
            return float(value)
        return super().parse_value(value, cast)  # type: ignore[no-untyped-call]

    def db_url(self, var: str, default: str) -> dict[str, Any]:  # type: ignore[override]
        """Return a database's settings. The address, which may hold a password, is not quoted."""
        try:
            if self.str(var, default=default).partition("://")[0] in self.DB_SCHEMES:
                return super().db_url(var, default=default)
        except ValueError:
            pass  # a port that is no number, a host that is none
        raise ImproperlyConfigured(
            f"{var} is no address of a database. "
            "It is postgres://user:password@host/name or sqlite:////path/of/the/file."
        )

    def level(self, var: str, default: str) -> str:
        """Return the name of a log level."""
        wanted: str = self.str(var, default=default).strip().upper()
        if wanted not in logging.getLevelNamesMapping():
            raise ImproperlyConfigured(
                f"{var} must be DEBUG, INFO, WARNING, ERROR or CRITICAL, not {wanted!r}."
            )
        return wanted

    def folder(self, var: str, default: Path) -> Path:
        """Return a folder that can be written to, made where it is missing."""
        path = Path(self.str(var, default=str(default)))
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ImproperlyConfigured(f"{var}: the folder cannot be made: {error}.") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise ImproperlyConfigured(f"{var}: the folder {path} cannot be written to.")
        return path

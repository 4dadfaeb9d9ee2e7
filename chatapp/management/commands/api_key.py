"""Makes, lists and revokes API keys."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet
from django.utils import timezone

from chatapp import formatting
from chatapp.conf import COMMAND_CHECKS
from chatapp.keys import ORDINARY_SCOPES, ApiKey, KeyRefusedError, create_key, revoke_key
from chatapp.management.console import printable

LEAST_PREFIX_CHARS = 6


class Command(BaseCommand):
    """One verb a call: create, list, revoke."""

    help = "Makes, lists and revokes API keys, with which programs use the API for a user."
    requires_system_checks = COMMAND_CHECKS

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        create = verbs.add_parser("create", help="make a key and print its secret, once")
        create.add_argument("user", metavar="USER", help="whose key it is")
        create.add_argument("--name", required=True, help="what it is for")
        create.add_argument(
            "--scope",
            action="append",
            choices=ApiKey.Scope.values,
            help=f"may be repeated (default: {' and '.join(ORDINARY_SCOPES)})",
        )
        create.add_argument("--expires-days", type=int, metavar="N", help="(default: never)")
        listing = verbs.add_parser("list", help="all keys, or those of one user")
        listing.add_argument("user", metavar="USER", nargs="?")
        revoke = verbs.add_parser("revoke", help="have a key open nothing any more")
        revoke.add_argument(
            "key", metavar="KEY", help="how its secret begins, as the list shows it, or its id"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        verbs: dict[str, Callable[..., None]] = {
            "create": self.create,
            "list": self.show_all,
            "revoke": self.revoke,
        }
        verbs[options["verb"]](**options)

    def create(self, *, user: str, name: str, **options: Any) -> None:
        """Make a key; its secret alone goes to stdout, so that a script can read it."""
        days: int | None = options["expires_days"]
        try:
            made = create_key(
                owner=_user(user),
                name=name,
                scopes=options["scope"] or ORDINARY_SCOPES,
                expires_at=None if days is None else timezone.now() + timedelta(days=days),
            )
        except (KeyRefusedError, OverflowError) as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stderr.write(
            f"The key {printable(str(made.key))} is made. Its secret is shown this once:",
            style_func=str,
        )
        self.stdout.write(made.secret)

    def show_all(self, *, user: str | None, **options: Any) -> None:
        """Write a line a key, newest first."""
        keys: QuerySet[ApiKey] = ApiKey.objects.select_related("owner")
        if user:
            keys = keys.filter(owner=_user(user))
        for key in keys.order_by("-created_at", "-id"):
            until = f"until {formatting.when(key.expires_at)}" if key.expires_at else ""
            used = formatting.when(key.last_used_at) if key.last_used_at else "never"
            parts = [
                f"{key.prefix}…".ljust(14),
                key.state.ljust(8),
                printable(key.owner.get_username()),
                printable(key.name),
                ", ".join(key.scopes),
                f"made {formatting.when(key.created_at)}",
                f"last used {used}",
                until,
            ]
            self.stdout.write("  ".join(part for part in parts if part))

    def revoke(self, *, key: str, **options: Any) -> None:
        """Revoke the one key that is meant."""
        found = _key(key)
        if not revoke_key(found):
            raise CommandError(f"The key {found} was revoked already.")
        self.stdout.write(f"The key {printable(str(found))} is revoked.")


def _user(name: str) -> Any:
    model = get_user_model()
    user = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if user is None:
        raise CommandError(f"There is no user “{name}”.")
    return user


def _key(text: str) -> ApiKey:
    """Return the only key whose secret or id begins like this. Raises CommandError."""
    wanted = text.strip().rstrip("…")
    if len(wanted) < LEAST_PREFIX_CHARS:
        raise CommandError(f"“{text}” is too short: write the beginning that the list shows.")
    keys = [key for key in ApiKey.objects.all() if _is_meant(key, wanted)]
    if not keys:
        raise CommandError(f"There is no API key that begins with “{text}”.")
    if len(keys) > 1:
        ids = ", ".join(str(key.pk) for key in keys)
        raise CommandError(f"Several keys begin with “{text}”. Name one by its id: {ids}.")
    return keys[0]


def _is_meant(key: ApiKey, wanted: str) -> bool:
    # Migrated tokens have shorter prefixes than keys; a whole secret is taken, too.
    return (
        wanted.startswith(key.prefix)
        or key.prefix.startswith(wanted)
        or str(key.pk).startswith(wanted)
    )

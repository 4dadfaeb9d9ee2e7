"""API keys: several a user, stored as a hash; whoever holds one acts for its owner.

A secret is shown once, when its key is made. It has 256 random bits, so a plain SHA-256 of it can
be stored and looked up: nobody guesses it, and no slow hash has to hold guessing up.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, models
from django.utils import timezone

from chatapp.compiled import compiled_read
from chatapp.ids import new_id

logger = logging.getLogger(__name__)
MARK = "pk_"
SECRET_BYTES = 32
PREFIX_CHARS = len(MARK) + 8
# The last use is written at most this often: a busy client must not write with every request.
USE_NOTED_EVERY = timedelta(minutes=1)


class KeyRefusedError(Exception):
    """A key cannot be made like this; the text is a sentence for whoever asked."""


class ApiKey(models.Model):
    """One key of one user. The secret is not stored, only its SHA-256 (`digest`).

    `prefix` is how the secret begins, for people to recognise it by. `scopes` are what the key
    may do; a key that was revoked stays as a row.
    """

    class Scope(models.TextChoices):
        """What a key may be used for."""

        READ = "read", "Read: GET what its owner has"
        WRITE = "write", "Write: everything that changes something, turns too"
        ADMIN_READ = "admin-read", "Operators' figures: /metrics, for staff"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=PREFIX_CHARS, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        app_label = "chatapp"
        db_table = "api_keys"
        verbose_name = "API key"
        constraints = [
            # The key of every request is found by its hash.
            models.UniqueConstraint(fields=["digest"], name="api_key_digest"),
        ]
        indexes = [
            # The admin's list of all keys, newest first.
            models.Index(fields=["-created_at", "-id"], name="api_key_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def state(self) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        is_over = self.expires_at is not None and self.expires_at <= timezone.now()
        return "expired" if is_over else "active"

    def may(self, scope: str) -> bool:
        """Whether the key has the scope."""
        return scope in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKey:
    """A key that was just made, and its secret, which nobody can tell later."""

    key: ApiKey
    secret: str


ORDINARY_SCOPES = (ApiKey.Scope.READ.value, ApiKey.Scope.WRITE.value)


def create_key(
    *,
    owner: Any,
    name: str,
    scopes: Collection[str] = ORDINARY_SCOPES,
    expires_at: datetime | None = None,
    secret: str = "",
) -> MadeKey:
    """Store a key and return it with its secret, which is drawn unless one is given.

    Raises KeyRefusedError where the key would be of no use.
    """
    check_key(owner=owner, name=name, scopes=scopes, expires_at=expires_at)
    secret = secret or MARK + secrets.token_urlsafe(SECRET_BYTES)
    key = ApiKey.objects.create(
        owner=owner,
        name=name.strip()[:100],
        prefix=secret[:PREFIX_CHARS],
        digest=digest_of(secret.encode()),
        scopes=[scope for scope in ApiKey.Scope.values if scope in scopes],
        expires_at=expires_at,
    )
    return MadeKey(key=key, secret=secret)


def check_key(
    *, owner: Any, name: str, scopes: Collection[str], expires_at: datetime | None
) -> None:
    """Raise KeyRefusedError where a key would be of no use."""
    known = ApiKey.Scope.values
    unknown = sorted(set(scopes) - set(known))
    if unknown:
        raise KeyRefusedError(
            f"There is no scope {', '.join(unknown)}; there are {', '.join(known)}."
        )
    if not scopes:
        raise KeyRefusedError(f"A key needs a scope, one or more of {', '.join(known)}.")
    if not name.strip():
        raise KeyRefusedError("A key needs a name, by which it is known when it is to go.")
    if ApiKey.Scope.ADMIN_READ in scopes and not owner.is_staff:
        raise KeyRefusedError(f"The scope {ApiKey.Scope.ADMIN_READ} is for keys of staff users.")
    if expires_at is not None and expires_at <= timezone.now():
        raise KeyRefusedError("The key would have expired already.")


def digest_of(secret: bytes) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret).hexdigest()


def find_key(secret: bytes) -> ApiKey | None:
    """Return the key of a secret with its owner, whatever its state; None for no key of ours."""
    return _of_digest.first(digest=digest_of(secret))


@compiled_read
def _of_digest(*, digest: str) -> models.QuerySet[ApiKey]:
    """The key with this digest, and its owner: asked for with every request."""
    return ApiKey.objects.select_related("owner").filter(digest=digest)


def bearer_of(authorization: str) -> bytes:
    """Return the secret of an `Authorization: Bearer …` header; empty for any other header."""
    scheme, _, secret = authorization.partition(" ")
    return secret.strip().encode("utf-8", "replace") if scheme.lower() == "bearer" else b""


def note_use(key: ApiKey) -> None:
    """Write that the key was used, unless that was written a moment ago.

    A database that cannot be written to just now costs the note, not the request.
    """
    now = timezone.now()
    before = now - USE_NOTED_EVERY
    if key.last_used_at is not None and key.last_used_at > before:
        return
    stale = models.Q(last_used_at__isnull=True) | models.Q(last_used_at__lte=before)
    try:
        ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)
    except DatabaseError:
        logger.warning("The last use of an API key could not be noted.", exc_info=True)


def revoke_key(key: ApiKey) -> bool:
    """Have the key open nothing any more; return whether it did until now."""
    now = timezone.now()
    revoked = ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=now)
    return bool(revoked)

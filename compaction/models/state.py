"""How far a branch is summarised, and who is working on it."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.utils import timezone


class CompactionState(models.Model):
    """One row a branch. `cursor` is the position up to which it is summarised.

    `covered_messages` and `covered_tokens` are the sums along the path up to the cursor, so that
    "since the last summary" is a subtraction. The lease is taken and renewed by conditional
    UPDATEs (services/leases.py) and expires, so a killed worker blocks nobody.
    """

    branch = models.OneToOneField(
        "chatapp.Branch",
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="compaction_state",
    )
    profile = models.CharField(
        max_length=60, blank=True, help_text="Name of the session's own profile; empty: default."
    )
    cursor = models.BigIntegerField(default=0)
    covered_messages = models.PositiveIntegerField(default=0)
    covered_tokens = models.BigIntegerField(default=0)
    last_consolidated_at = models.DateTimeField(null=True, blank=True)
    lease_owner = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    pending = models.BooleanField(default=False)
    failures = models.PositiveIntegerField(default=0)
    backoff_until = models.DateTimeField(null=True, blank=True)
    look_again_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When time alone may make a compaction due; the sweep looks again then.",
    )

    # Where the cursor stood in the database when the row was read.
    stored_cursor: int = 0

    class Meta:
        db_table = "compaction_states"
        indexes = [
            # The sweep: leases that ran out.
            models.Index(
                fields=["lease_expires_at"],
                condition=models.Q(lease_owner__isnull=False),
                name="state_leased",
            ),
            # The sweep: idle branches whose time has come.
            models.Index(
                fields=["look_again_at"],
                condition=models.Q(look_again_at__isnull=False),
                name="state_look_again",
            ),
            # The page of a profile: the few branches that name one.
            models.Index(fields=["profile"], condition=~models.Q(profile=""), name="state_profile"),
        ]

    def __str__(self) -> str:
        return f"State of branch {str(self.branch_id)[:8]}"

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        """Return the row as it was read, remembering where the cursor stood."""
        row = super().from_db(*args, **kwargs)
        row.stored_cursor = row.__dict__.get("cursor", 0)
        return row

    @property
    def is_consolidating(self) -> bool:
        """Whether a worker holds the branch now (document 001's `_consolidating`)."""
        return (
            self.lease_owner is not None
            and self.lease_expires_at is not None
            and self.lease_expires_at > timezone.now()
        )

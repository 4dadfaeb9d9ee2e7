"""What holds for a branch, and the profiles that say how it is compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from chatapp.database import database_now
from chatapp.ids import short_id
from chatapp.llm.registry import UnknownModelError, get_model
from compaction.conf import compaction_settings
from compaction.engine.parameters import Profile
from compaction.engine.profile import PRESETS, ProfileError, build, from_environment

if TYPE_CHECKING:
    from chatapp.selectors import PinnedSums


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownToRun:
    """What a run asks for in the statement that reads its branch's state (leases.asked_state).

    None where a branch's ancestors count, too: then it is asked for where it is needed.
    """

    has_draft: bool
    # Whether a summary of the session, whatever became of it, has a person's instructions.
    has_instructions: bool
    # Whether runs wait that are not a rule's.
    others_wait: bool
    profile_in_force: int | None
    # Whether a placeholder of old data stands for messages without a summary's row.
    has_bare_placeholder: bool | None = None


class CompactionState(models.Model):
    """One row a branch. `cursor` is the position up to which it is summarised.

    `covered_messages`, `covered_tokens` and `covered_chars` are the sums along the path up to the
    cursor, so that "since the last summary" is a subtraction. `last_consolidated_at` is when the
    branch was compacted last, or a summary of it restored. The lease is taken and renewed by
    conditional UPDATEs (branches/leases.py) and expires, so a killed worker blocks nobody. The hold
    is a person's: what they took back from a summary (branches/holds.py).
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
    covered_chars = models.BigIntegerField(default=0, db_default=0)
    gainless_total = models.BigIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text="The branch's tokens when a run would have made no request smaller; 0: none.",
    )
    last_consolidated_at = models.DateTimeField(null=True, blank=True)
    lease_owner = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    recheck_requested = models.BooleanField(default=False)
    failures = models.PositiveIntegerField(default=0)
    backoff_until = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When time alone may make a compaction due; the sweep looks again then.",
    )
    cache_expires_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When the server forgets the prompt of the branch's last request.",
    )

    hold_through = models.BigIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text="Up to this position no rule compacts: a person took a summary back.",
    )
    hold_end = models.CharField(
        max_length=12, blank=True, default="", db_default="", editable=False
    )
    held_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
    )
    held_at = models.DateTimeField(null=True, blank=True, editable=False)
    held_until = models.DateTimeField(null=True, blank=True, editable=False)

    # Where the cursor stood in the database when the row was read, and what the clock said.
    stored_cursor: int = 0
    # The tokens of pinned messages up to there, where whoever read the row asked for them, too.
    pinned_sums: PinnedSums | None = None
    # Whether any stands behind it; None where that was not asked for.
    has_pins_behind: bool | None = None
    stored_cache_expires_at: datetime | None = None
    # Whether a summary of a later program covers what stands behind the cursor, as far as that was
    # asked for (branches/leases.state_of).
    passes_over: bool = False
    # Whether an automatic run waits for the branch; None where that was not asked for.
    has_waiting_run: bool | None = None
    # What only runs ask for; None where nobody did.
    known_to_run: KnownToRun | None = None

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
                fields=["next_check_at"],
                condition=models.Q(next_check_at__isnull=False),
                name="state_next_check",
            ),
            # The list of sessions: the few branches whose last automatic runs failed.
            models.Index(
                fields=["branch"], condition=models.Q(failures__gt=0), name="state_failing"
            ),
            # What needs a look: the few branches that somebody holds, newest first.
            models.Index(
                fields=["-held_at"],
                condition=models.Q(hold_through__isnull=False),
                name="state_held",
            ),
            # The page of a profile: the few branches that name one.
            models.Index(fields=["profile"], condition=~models.Q(profile=""), name="state_profile"),
        ]

    def __str__(self) -> str:
        return f"State of branch {short_id(self.branch_id)}"

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        """Return the row as it was read, remembering where the cursor and the clock stood."""
        row = super().from_db(*args, **kwargs)
        row.stored_cursor = row.__dict__.get("cursor", 0)
        row.stored_cache_expires_at = row.__dict__.get("cache_expires_at")
        return row

    @property
    def known_pins(self) -> PinnedSums | None:
        """The sums of the pins before the cursor, where they were read with the state."""
        return self.pinned_sums if self.cursor == self.stored_cursor else None

    @property
    def has_no_pins(self) -> bool:
        """Whether it is known that no pinned message stands before the cursor."""
        return self.known_pins is not None and not self.known_pins.messages

    @property
    def has_no_pins_behind(self) -> bool:
        """Whether it is known that no pinned message stands behind the cursor."""
        return self.has_pins_behind is False and self.cursor >= self.stored_cursor

    @property
    def is_consolidating(self) -> bool:
        """Whether a worker holds the branch now."""
        return (
            self.lease_owner is not None
            and self.lease_expires_at is not None
            and self.lease_expires_at > database_now()
        )

    @property
    def is_held(self) -> bool:
        """Whether a person holds messages behind the cursor, and the hold's time is not over."""
        return self.hold_through is not None and self.is_held_at(database_now())

    def is_held_at(self, now: datetime) -> bool:
        """Whether it is held at a time by the database's clock."""
        return (
            self.hold_through is not None
            and self.hold_through > self.cursor
            and (self.held_until is None or self.held_until > now)
        )


class CompactionProfile(models.Model):
    """One version of a profile. A change makes a new row, so runs say what they really used.

    `parameters` holds only what differs from the preset `base`; the preset's variables stand
    between the two.
    """

    name = models.SlugField(max_length=60)
    version = models.PositiveIntegerField(default=1)
    base = models.CharField(
        max_length=30,
        default="bisect",
        choices=[(name, name) for name in PRESETS],
        help_text="The preset whose values count where this profile sets none.",
    )
    parameters = models.JSONField(
        default=dict, blank=True, help_text="What differs from the preset, as a JSON object."
    )
    description = models.CharField(max_length=200, blank=True)
    is_default = models.BooleanField(
        default=False, help_text="Used by every session that names no profile."
    )
    is_current = models.BooleanField(default=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "compaction_profiles"
        ordering = ["name", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="profile_version"),
            # One current version a name, and one default among them.
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(is_current=True), name="profile_current"
            ),
            models.UniqueConstraint(
                fields=["is_default"],
                condition=models.Q(is_default=True, is_current=True),
                name="profile_default",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    def resolved(self) -> Profile:
        """Return all parameters: preset, then the environment, then this row's own.

        Raises ProfileError, also for a row that another version of the program wrote.
        """
        if self.base not in PRESETS:
            raise ProfileError({"base": f"There is no preset {self.base!r}."})
        if not isinstance(self.parameters, dict):
            raise ProfileError({"parameters": "Must be a JSON object of parameters."})
        return build(PRESETS[self.base], self.environment() | self.parameters)

    def environment(self) -> dict[str, Any]:
        """Return what variables set between the preset and this row; ProfileError for junk."""
        return from_environment(compaction_settings.environment, self.base)

    def clean(self) -> None:
        """Refuse parameters that cannot work, with a sentence for each."""
        if self.base not in PRESETS:
            raise ValidationError({"base": f"There is no preset {self.base!r}."})
        if not isinstance(self.parameters, dict):
            raise ValidationError({"parameters": "Must be a JSON object of parameters."})
        try:
            profile = self.resolved()
            for alias in filter(None, profile.summary_models):
                get_model(alias)
        except ProfileError as error:
            raise _refused(error.errors) from error
        except UnknownModelError as error:
            raise _refused({"summary_model": str(error)}) from error


def _refused(sentences: Mapping[str, str]) -> ValidationError:
    """Return the error of `parameters`; `params` tell a form at which field a sentence belongs."""
    return ValidationError(
        {
            "parameters": [
                ValidationError(
                    "%(parameter)s: %(sentence)s", params={"parameter": name, "sentence": text}
                )
                for name, text in sentences.items()
            ]
        }
    )

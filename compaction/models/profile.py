"""A profile: a named, versioned set of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from chatapp.llm.registry import UnknownModelError, get_model
from compaction.conf import compaction_settings
from compaction.engine.parameters import Profile
from compaction.engine.profile import PRESETS, ProfileError, build, from_environment


class CompactionProfile(models.Model):
    """One version of a profile. A change makes a new row, so runs say what they really used.

    `parameters` holds only what differs from the preset `base`; variables of document 002 stand
    between the two for base `bisect`, those of document 001 for `sliding_window`.
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
            if profile.summary_model:
                get_model(profile.summary_model)
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

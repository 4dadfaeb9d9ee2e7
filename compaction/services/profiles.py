"""Profiles: which one counts, new versions, the default."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Max

from chatapp.models import Branch, Session
from compaction.conf import compaction_settings
from compaction.engine.profile import PRESETS, Profile, ProfileError, build
from compaction.models import CompactionProfile, CompactionState
from compaction.services.errors import CompactionError
from compaction.services.leases import ensure_state

logger = logging.getLogger(__name__)
_DESCRIPTIONS = {
    "bisect": "Engine of document 002: count and token limits, keep last N, halve and merge."
}


def find_profile(name: str = "") -> CompactionProfile:
    """Return the current version of a profile; without a name, the default one.

    Raises CompactionError with the names that exist.
    """
    current = CompactionProfile.objects.filter(is_current=True)
    if name:
        row = current.filter(name=name).first()
    else:
        row = (
            current.filter(is_default=True).first()
            or current.filter(name=compaction_settings.default_profile).first()
        )
    if row is None:
        names = ", ".join(current.values_list("name", flat=True)) or "none; run manage.py migrate"
        raise CompactionError(f"There is no profile {name or 'by default'!r}. Profiles: {names}.")
    return row


def parameters_of(row: CompactionProfile) -> Profile:
    """Return a profile's parameters; where they cannot work, the nearest that can, and log it.

    A wrong variable in the environment must cost nobody a turn (rule 6); compaction.E004 and E005
    name it.
    """
    try:
        return row.resolved()
    except ProfileError as error:
        logger.error("Profile %s cannot be used as it is: %s", row, error)
    try:
        return build(PRESETS[row.base], row.parameters)
    except ProfileError:
        return PRESETS[row.base]


def save_profile(
    *,
    name: str,
    parameters: Mapping[str, Any],
    base: str | None = None,
    description: str | None = None,
    make_default: bool = False,
) -> CompactionProfile:
    """Store a new version of a profile (version 1 for a new name) and return it.

    Raises django.core.exceptions.ValidationError with a sentence for every wrong parameter.
    """
    with transaction.atomic():
        old = CompactionProfile.objects.filter(name=name, is_current=True).first()
        newest = CompactionProfile.objects.filter(name=name).aggregate(n=Max("version"))["n"] or 0
        is_default = make_default or bool(old and old.is_default)
        row = CompactionProfile(
            name=name,
            version=newest + 1,
            base=base or (old.base if old else "bisect"),
            parameters=dict(parameters),
            description=(old.description if old else "") if description is None else description,
            is_default=is_default,
        )
        row.full_clean(validate_unique=False, validate_constraints=False)
        CompactionProfile.objects.filter(name=name, is_current=True).update(is_current=False)
        if is_default:
            CompactionProfile.objects.filter(is_default=True).update(is_default=False)
        row.save(force_insert=True)
    return row


def make_default(name: str) -> CompactionProfile:
    """Make a profile the one for sessions that name none."""
    row = find_profile(name)
    with transaction.atomic():
        CompactionProfile.objects.filter(is_default=True).update(is_default=False)
        CompactionProfile.objects.filter(pk=row.pk).update(is_default=True)
    row.is_default = True
    return row


def profile_of(state: CompactionState) -> CompactionProfile:
    """Return the profile that counts for a branch; the default one where its own is gone."""
    try:
        return find_profile(state.profile)
    except CompactionError as error:
        if not state.profile:
            raise
        logger.warning("Branch %s uses the default profile. %s", state.pk, error)
        return find_profile()


def assign_profile(session: Session, name: str) -> None:
    """Give a session a profile of its own by name; an empty name goes back to the default.

    All of its branches get it; later ones take it from their parents.
    """
    if name:
        find_profile(name)
    for branch in Branch.objects.filter(session=session):
        CompactionState.objects.filter(pk=ensure_state(branch).pk).update(profile=name)


def install_presets() -> None:
    """Store a row for every preset that has none; what operators changed stays."""
    for name in PRESETS:
        if not CompactionProfile.objects.filter(name=name).exists():
            save_profile(
                name=name,
                base=name,
                parameters={},
                description=_DESCRIPTIONS.get(name, ""),
                make_default=name == compaction_settings.default_profile
                and not CompactionProfile.objects.filter(is_default=True).exists(),
            )

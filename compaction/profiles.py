"""Profiles: which one counts, new versions, the default."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import CharField, F, Max, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.utils import timezone

from chatapp.compiled import compiled_read
from chatapp.round_trips import Statement
from compaction.conf import compaction_settings
from compaction.engine.parameters import Profile
from compaction.engine.profile import PRESETS, ProfileError, build
from compaction.errors import CompactionError, StaleProfileError
from compaction.models import CompactionProfile, CompactionState

logger = logging.getLogger(__name__)
FALLBACK = "bisect"
_DESCRIPTIONS = {
    "bisect": "Count and token limits, keep last N, halve and merge.",
    "sliding_window": "A tail of messages stays, what leaves it is summarised in the background.",
    "checkpoint": "Recent tokens stay; one summary, fit to go on from, is kept up to date.",
    "abridged": "Recent exchanges stay; one node holds a summary and an abridged history.",
    "balanced": "Recent tokens stay; summarised in the background before the window is full.",
}


def find_profile(name: str = "") -> CompactionProfile:
    """Return the current version of a profile; without a name, the default one.

    Raises CompactionError with the names that exist.
    """
    if name:
        row = _current.first(name=name)
    else:
        row = (
            _current.first(name=None)
            or _current.first(name=compaction_settings.default_profile)
            # A name that nobody has (compaction.E007 says so) must cost nobody a turn.
            or _current.first(name=FALLBACK)
        )
    if row is None:
        current = CompactionProfile.objects.filter(is_current=True)
        names = ", ".join(current.values_list("name", flat=True)) or "none; run manage.py migrate"
        raise CompactionError(f"There is no profile {name or 'by default'!r}. Profiles: {names}.")
    return row


@compiled_read
def current_names() -> QuerySet[CompactionProfile, str]:
    """Return the names of the current profiles."""
    rows = CompactionProfile.objects.filter(is_current=True).order_by("name")
    return rows.values_list("name", flat=True)


@compiled_read
def _current(*, name: str | None) -> QuerySet[CompactionProfile]:
    """Return the current version of a name, or of the default profile."""
    rows = CompactionProfile.objects.filter(is_current=True)
    return rows.filter(is_default=True) if name is None else rows.filter(name=name)


@compiled_read
def _of_branch(*, branch: UUID) -> QuerySet[CompactionProfile]:
    """Return the current version of what a branch's state names; without a name, the default."""
    return in_force_of(Subquery(CompactionState.objects.filter(pk=branch).values("profile")))


def in_force_of(name: Combinable | OuterRef) -> QuerySet[CompactionProfile]:
    """Return the current version of a name that the database works out; without one, the default.

    The name may be a reference to an outer query.
    """
    rows = CompactionProfile.objects.filter(is_current=True)
    rows = rows.alias(own=Coalesce(name, Value(""), output_field=CharField()))
    return rows.filter(Q(name=F("own")) | Q(own="", is_default=True))


def asked_profile(branch: UUID) -> Statement[list[CompactionProfile]]:
    """Return the read of a branch's profile that can go with the read of its state."""
    return _of_branch.asked(branch=branch, most=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableProfile:
    """The parameters in force, and what of the stored ones is not, as a sentence; or empty."""

    parameters: Profile
    problem: str = ""


def parameters_of(row: CompactionProfile) -> Profile:
    """Return a profile's parameters; where they cannot work, the nearest that can, and log it."""
    return usable_profile(row).parameters


def usable_profile(row: CompactionProfile) -> UsableProfile:
    """Return a profile's parameters, or the nearest that work: without the variables of the
    environment, without what is wrong, at last the preset's.

    A wrong variable in the environment, or a plug-in that was removed, must cost nobody a turn;
    compaction.E004, E005 and E008 name it.
    """
    try:
        return UsableProfile(parameters=row.resolved())
    except ProfileError as error:
        logger.error("Profile %s cannot be used as it is: %s", row, error)
        problem = f"The profile {row} cannot be used as it is: {error}"
        wrong = set(error.errors)
    preset = PRESETS.get(row.base, PRESETS["bisect"])
    own = row.parameters if isinstance(row.parameters, dict) else {}
    right = {name: value for name, value in own.items() if name not in wrong}
    for with_environment, values in ((False, own), (True, right), (False, right)):
        try:
            base = row.environment() if with_environment else {}
            return UsableProfile(parameters=build(preset, base | values), problem=problem)
        except ProfileError:
            continue
    return UsableProfile(parameters=preset, problem=problem)


def save_profile(
    *,
    name: str,
    parameters: Mapping[str, Any],
    base: str | None = None,
    description: str | None = None,
    make_default: bool = False,
    opened: int | None = None,
) -> CompactionProfile:
    """Store a new version of a profile (version 1 for a new name) and return it.

    Where nothing differs from the current version, that one is returned and nothing is stored.
    `opened` is the version that was looked at before (0: there was none): another one is not
    overwritten, StaleProfileError is raised. Raises django.core.exceptions.ValidationError with a
    sentence for every wrong parameter.
    """
    with transaction.atomic():
        _wait_for_other_writers()
        old = CompactionProfile.objects.filter(name=name, is_current=True).first()
        if opened is not None:
            refuse_stale(old, opened)
        newest = CompactionProfile.objects.filter(name=name).aggregate(n=Max("version"))["n"] or 0
        row = CompactionProfile(
            name=name,
            version=newest + 1,
            base=base or (old.base if old else "bisect"),
            parameters=dict(parameters),
            description=(old.description if old else "") if description is None else description,
            is_default=make_default or bool(old and old.is_default),
        )
        row.full_clean(validate_unique=False, validate_constraints=False)
        if old is not None and _says_the_same(old, row):
            return old
        CompactionProfile.objects.filter(name=name, is_current=True).update(is_current=False)
        if row.is_default:
            CompactionProfile.objects.filter(is_default=True).update(is_default=False)
        row.save(force_insert=True)
        _look_sooner(row)
    return row


def _look_sooner(row: CompactionProfile) -> None:
    """Have the sweep look at the profile's branches that wait for a time: it may be another now."""
    counts = Q(profile=row.name)
    if find_profile().pk == row.pk:
        named = CompactionProfile.objects.filter(is_current=True).values("name")
        counts |= ~Q(profile__in=named)
    now = timezone.now()
    CompactionState.objects.filter(counts, next_check_at__gt=now).update(next_check_at=now)


def refuse_stale(current: CompactionProfile | None, opened: int) -> None:
    """Raise StaleProfileError where the current version is not the one that was looked at."""
    if (current.version if current else 0) != opened:
        raise StaleProfileError(
            f"Version {current.version} was saved meanwhile: look at it first."
            if current
            else "The profile is gone: make it anew."
        )


def restore_version(row: CompactionProfile, *, opened: int | None = None) -> CompactionProfile:
    """Store what an old version says as a new one; see save_profile."""
    return save_profile(
        name=row.name,
        base=row.base,
        parameters=row.parameters,
        description=row.description,
        opened=opened,
    )


def reset_profile(name: str, *, opened: int | None = None) -> CompactionProfile:
    """Store a version without any parameter of its own; see save_profile."""
    return save_profile(name=name, parameters={}, opened=opened)


def make_default(name: str) -> CompactionProfile:
    """Make a profile the one for sessions that name none."""
    with transaction.atomic():
        _wait_for_other_writers()
        row = find_profile(name)
        CompactionProfile.objects.filter(is_default=True).update(is_default=False)
        CompactionProfile.objects.filter(pk=row.pk).update(is_default=True)
        _look_sooner(row)
    row.is_default = True
    return row


def _wait_for_other_writers() -> None:
    """Hold the table's first row until the transaction ends: one writer of profiles at a time.

    Not the current row: whoever waited for it would find that it is current no more, and miss the
    version that took its place. Rows are never deleted, so the first one is there for everybody;
    NO KEY lets runs that refer to it be stored meanwhile. SQLite has one writer anyway.
    """
    CompactionProfile.objects.select_for_update(no_key=True).order_by("pk").only("pk").first()


def _says_the_same(old: CompactionProfile, new: CompactionProfile) -> bool:
    return all(
        getattr(old, name) == getattr(new, name)
        for name in ("base", "parameters", "description", "is_default")
    )


def profile_of(
    state: CompactionState, found: Sequence[CompactionProfile] = ()
) -> CompactionProfile:
    """Return the profile that counts for a branch; the default one where its own is gone.

    `found` is what asked_profile found beside the state, which may name another one by now.
    """
    for row in found:
        if row.name == state.profile or (row.is_default and not state.profile):
            return row
    try:
        return find_profile(state.profile)
    except CompactionError as error:
        if not state.profile:
            raise
        logger.warning("Branch %s uses the default profile. %s", state.pk, error)
        return find_profile()


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

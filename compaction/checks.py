"""System checks of compaction: settings that would lose work or run it twice."""

from __future__ import annotations

import math
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection

from chatapp.conf import SETTINGS_TAG
from chatapp.llm.registry import UnknownModelError, get_model
from compaction import hooks
from compaction.conf import CompactionSettings, compaction_settings
from compaction.engine.profile import (
    DEFAULT_PRESET,
    PRESETS,
    ProfileError,
    build,
    from_environment,
)
from compaction.engine.registry import REGISTRIES
from compaction.models import CompactionProfile

# A worker renews its lease with every sign of life; two may be late.
BEATS_IN_A_LEASE = 3
# A year; and more than anybody counts in an hour.
MOST_SECONDS, MOST = 31_536_000, 10**12


@register(SETTINGS_TAG, Tags.compatibility)
def check_queue(**kwargs: Any) -> list[CheckMessage]:
    """The queue must not deliver a task twice, nor forget or repeat a failed one."""
    queue = getattr(settings, "Q_CLUSTER", {})
    timeout, retry = queue.get("timeout"), queue.get("retry", 60)
    found: list[CheckMessage] = []
    if not isinstance(timeout, int) or isinstance(timeout, bool):
        found.append(
            Error(
                "Q_CLUSTER['timeout'] must be a whole number of seconds.",
                hint="Set QUEUE_TIMEOUT_SECONDS to a whole number, for example 600.",
                id="compaction.E001",
            )
        )
        return found
    workers = max(1, int(queue.get("workers", 1)))
    waiting = math.ceil((int(queue.get("queue_limit", 4)) + 1) / workers)
    if retry <= timeout * (1 + waiting):
        found.append(
            Warning(
                f"Q_CLUSTER retry ({retry} s) is too short for timeout {timeout} s: a task that "
                "still waits or works would be delivered a second time.",
                hint=f"Set QUEUE_RETRY_SECONDS above {timeout * (1 + waiting)}.",
                id="compaction.W001",
            )
        )
    if not queue.get("max_attempts") or not queue.get("ack_failures"):
        found.append(
            Warning(
                "Q_CLUSTER would repeat failed tasks for ever.",
                hint="Set max_attempts to 1 and ack_failures to True; run rows keep the failures.",
                id="compaction.W002",
            )
        )
    if compaction_settings.run_seconds >= timeout:
        found.append(
            Error(
                f"A run's budget ({compaction_settings.run_seconds} s) is not below the queue's "
                f"time-out ({timeout} s): the queue would kill it before it can say why.",
                hint="Lower COMPACTION_RUN_SECONDS or raise QUEUE_TIMEOUT_SECONDS.",
                id="compaction.E002",
            )
        )
    return found


@register(SETTINGS_TAG, Tags.compatibility)
def check_times(**kwargs: Any) -> list[CheckMessage]:
    """A lease must outlive some lost signs of life, or a slow database costs a live worker it."""
    lease, beat = compaction_settings.lease_seconds, compaction_settings.heartbeat_seconds
    if lease >= BEATS_IN_A_LEASE * beat:
        return []
    return [
        Error(
            f"A lease ({lease} s) is shorter than {BEATS_IN_A_LEASE} signs of life ({beat} s each) "
            "of the worker that holds it: a short delay would cost it the branch.",
            hint="Raise COMPACTION_LEASE_SECONDS or lower COMPACTION_HEARTBEAT_SECONDS.",
            id="compaction.E003",
        )
    ]


@register(SETTINGS_TAG, Tags.compatibility)
def check_limits(**kwargs: Any) -> list[CheckMessage]:
    """Times and counts outside their limits would stop all work, never end it, or be no time."""
    found: list[CheckMessage] = []
    for declared in CompactionSettings.declarations():
        value, least = getattr(compaction_settings, declared.name), declared.minimum
        most = MOST_SECONDS if declared.unit == "seconds" else MOST
        if least is None or least <= value <= most:
            continue
        limit = f"the least that works is {least}" if value < least else f"the most is {most}"
        found.append(
            Error(
                f"COMPACTION['{declared.name.upper()}'] is {value}; {limit}.",
                hint=f"Set {declared.variable} to a value from {least} to {most}, or leave it out.",
                id="compaction.E006",
            )
        )
    return found


@register(SETTINGS_TAG, Tags.compatibility)
def check_plugins(**kwargs: Any) -> list[CheckMessage]:
    """What the setting adds must be there and keep its contract; it is left out otherwise.

    What is built in is not loaded for this: every command would wait for all that summarises.
    """
    found: list[CheckMessage] = []
    for setting, registry in REGISTRIES.items():
        for name in registry.added:
            if not (problem := registry.problem_with(name)):
                continue
            found.append(
                Error(
                    f"COMPACTION['{setting}']: {problem}",
                    hint="Correct the dotted path, or the object that it leads to (see "
                    "compaction/engine/protocols.py), or take the name out of the setting.",
                    id="compaction.E008",
                )
            )
    return found


@register(SETTINGS_TAG, Tags.compatibility)
def check_hooks(**kwargs: Any) -> list[CheckMessage]:
    """Hooks must be there and answer to one of the names that are asked; they are left out else."""
    return [
        Error(
            f"COMPACTION['HOOKS']: {problem}",
            hint="Correct the dotted path, or the class that it leads to (docs/hooks.md), or take "
            "it out of COMPACTION_HOOKS.",
            id="compaction.E010",
        )
        for problem in hooks.problems()
    ]


@register(SETTINGS_TAG, Tags.compatibility)
def check_alerts(**kwargs: Any) -> list[CheckMessage]:
    """Alerts must have a way to somebody, an address that can be one, and kinds that there are."""
    told = (compaction_settings.alert_emails, compaction_settings.alert_webhook)
    if not any((*told, compaction_settings.alert_kinds)):
        # The list of what needs a look, which every command would load for this.
        return []
    from compaction.attention.alerts import alerting
    from compaction.attention.kinds import KIND_NAMES
    from compaction.attention.webhook import problem_with

    found: list[CheckMessage] = []
    url = compaction_settings.alert_webhook
    if url and (problem := problem_with(url)):
        found.append(
            Error(
                f"COMPACTION_ALERT_WEBHOOK cannot be used. {problem}",
                hint="Set it to the whole address, or leave it out.",
                id="compaction.E011",
            )
        )
    if unknown := sorted(set(compaction_settings.alert_kinds) - set(KIND_NAMES)):
        found.append(
            Error(
                f"COMPACTION_ALERT_KINDS names {', '.join(unknown)}, and there is no such kind.",
                hint=f"The kinds are {', '.join(KIND_NAMES)}.",
                id="compaction.E012",
            )
        )
    mails = settings.EMAIL_BACKEND == "django.core.mail.backends.smtp.EmailBackend"
    if compaction_settings.alert_emails and mails and not settings.EMAIL_HOST:
        found.append(
            Warning(
                "COMPACTION_ALERT_EMAILS is set, and EMAIL_HOST is not: no alert can be mailed.",
                hint="Set EMAIL_HOST to your mail server.",
                id="compaction.W004",
            )
        )
    if alerting() and not compaction_settings.alert_base_url:
        found.append(
            Warning(
                "Alerts lead nowhere: their links are paths without a host.",
                hint="Set COMPACTION_ALERT_BASE_URL to the address of this installation.",
                id="compaction.W005",
            )
        )
    return found


@register(SETTINGS_TAG, Tags.compatibility)
def check_environment(**kwargs: Any) -> list[CheckMessage]:
    """Variables that override a preset must be readable as what they stand for, and fit."""
    found: list[CheckMessage] = []
    for name, preset in PRESETS.items():
        try:
            profile = build(preset, from_environment(compaction_settings.environment, name))
            for alias in filter(None, profile.summary_models):
                get_model(alias)
        except UnknownModelError as unknown:
            found.append(
                Error(
                    f"SUMMARY_MODEL: {unknown}",
                    hint="Name aliases of CHATAPP['MODELS'], with commas between, or leave it out.",
                    id="compaction.E009",
                )
            )
        except ProfileError as error:
            found += [
                Error(
                    f"{parameter}: {sentence}",
                    hint="Booleans are true or false; numbers are plain digits. See "
                    "docs/settings.md.",
                    id="compaction.E004",
                )
                for parameter, sentence in error.errors.items()
            ]
    return found


@register(Tags.database)
def check_default_profile(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """COMPACTION_PROFILE must name a profile, and it only counts while none is marked."""
    if not databases or not _has_profiles():
        return []
    name = compaction_settings.default_profile
    current = CompactionProfile.objects.filter(is_current=True)
    names = list(current.values_list("name", flat=True))
    marked = current.filter(is_default=True).values_list("name", flat=True).first()
    # A preset that `migrate` is about to install is no mistake.
    if names and name not in names and name != DEFAULT_PRESET:
        return [
            Error(
                f"COMPACTION_PROFILE is {name!r}, and there is no such profile.",
                hint=f"Set it to one of {', '.join(sorted(names))}, or leave it out.",
                id="compaction.E007",
            )
        ]
    # Who never set the variable has marked a profile on purpose.
    if marked is not None and name not in (marked, DEFAULT_PRESET):
        return [
            Warning(
                f"COMPACTION_PROFILE is {name!r}, but the profile {marked!r} is marked as the "
                "default, which counts.",
                hint=f"Mark {name!r} as the default in the admin, or set COMPACTION_PROFILE to "
                f"{marked!r}.",
                id="compaction.W003",
            )
        ]
    return []


def _has_profiles() -> bool:
    """Whether the table is there: `migrate` asks before it is."""
    return CompactionProfile._meta.db_table in connection.introspection.table_names()


@register(Tags.database)
def check_profiles(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Stored profiles must still work together with the environment of today."""
    if not databases or not _has_profiles():
        return []
    found: list[CheckMessage] = []
    for row in CompactionProfile.objects.filter(is_current=True):
        try:
            row.resolved()
        except ProfileError as error:
            found.append(
                Error(
                    f"Profile {row} cannot be used: {error}",
                    hint="Change it in the admin, or the variable that it clashes with. Until then "
                    "the preset counts for what is wrong in it.",
                    id="compaction.E005",
                )
            )
    return found

"""`compaction_settings`: the COMPACTION setting, declared once, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.signals import setting_changed

from chatapp.environment import (
    Pieces,
    SettingsGroup,
    Switch,
    lazy_settings,
    setting,
    texts_of,
)
from compaction.engine.profile import DEFAULT_PRESET, ENVIRONMENT, WINDOW_ENVIRONMENT
from compaction.engine.registry import REGISTRIES


class CompactionSettings(SettingsGroup):
    """COMPACTION with its defaults.

    A lease outlives some heartbeats, a run's budget is shorter than the queue's time-out
    (compaction.E003 and E002 check it).
    """

    variable_prefix: ClassVar[str] = "COMPACTION_"

    default_profile: str = setting(
        DEFAULT_PRESET,
        "The profile where none is marked as default.",
        variable="COMPACTION_PROFILE",
    )
    lease_seconds: int = setting(
        90,
        "A branch is free again this long after its worker fell silent.",
        unit="seconds",
        minimum=1,
    )
    heartbeat_seconds: int = setting(
        15,
        "A working worker renews its lease and its sign of life this often.",
        unit="seconds",
        minimum=1,
    )
    run_seconds: int = setting(
        480,
        "Time budget of a run in the queue; below the queue's time-out.",
        unit="seconds",
        minimum=1,
    )
    inline_seconds: int = setting(
        120, "Time budget of a compaction that a user waits for.", unit="seconds", minimum=1
    )
    inline_calls: int = setting(
        8,
        "Model calls of such a compaction, and batches of a backlog before one request; what "
        "takes more is finished in the background.",
        unit="calls",
        minimum=1,
    )
    queued_run_seconds: int = setting(
        120,
        "A run that waited this long with an empty queue is queued again.",
        unit="seconds",
        minimum=1,
    )
    backoff_seconds: int = setting(
        60,
        "Pause after a failed run, doubled with every further one, up to an hour.",
        unit="seconds",
        minimum=0,
    )
    max_run_attempts: int = setting(
        3, "How often a run whose workers die is tried before it is given up.", minimum=1
    )
    stored_result_chars: int = setting(
        400_000,
        "Longer tool results are stored cut, the whole text beside them; `0` stores all in one.",
        unit="characters",
        minimum=0,
    )
    session_calls_per_hour: int = setting(
        400,
        "Most model calls of summarising one session within an hour; one that is repeated after a "
        "429 or 5xx counts once; `0`: no limit.",
        unit="calls",
        minimum=0,
    )
    session_tokens_per_hour: int = setting(
        4_000_000, "Most tokens of those calls, in and out.", unit="tokens", minimum=0
    )
    owner_calls_per_hour: int = setting(
        2_000, "The same for all sessions of one owner.", unit="calls", minimum=0
    )
    owner_tokens_per_hour: int = setting(
        20_000_000, "The same for all sessions of one owner.", unit="tokens", minimum=0
    )
    breaker_failures: int = setting(
        5,
        "After so many failed summarising calls in a row a model is left alone.",
        minimum=1,
    )
    breaker_seconds: int = setting(
        60,
        "For this long, doubled when the call that tries again fails, up to an hour.",
        unit="seconds",
        minimum=1,
    )
    low_score: int = setting(
        20,
        "Summaries whose quality scores lower, of 100, are listed as those that need a look.",
        minimum=0,
    )
    alert_emails: Pieces = setting(
        (),
        "Who is mailed when something newly needs a look; commas between. Takes `EMAIL_HOST`.",
    )
    alert_webhook: str = setting("", "Address that is sent the same as JSON, by POST.")
    alert_webhook_private: Switch = setting(
        False, "That address may be on this machine or in a private network."
    )
    alert_kinds: Pieces = setting(
        (), "The kinds that are told of; commas between.", shown="all of them"
    )
    alert_base_url: str = setting(
        "", "Where the admin is, for the links: `https://chat.example.com`."
    )
    alert_seconds: int = setting(
        10, "Longest wait for the webhook's connection and answer.", unit="seconds", minimum=1
    )
    environment: Mapping[str, str] = setting(
        lambda: texts_of(ENVIRONMENT | WINDOW_ENVIRONMENT),
        "The variables that override parameters of a preset, as they are set.",
        variable=None,
    )
    strategies: Mapping[str, str] = setting(
        dict, "Strategies of plug-ins: name and dotted path.", variable=None
    )
    cuts: Mapping[str, str] = setting(
        dict, "Cuts of plug-ins: name and dotted path.", variable=None
    )
    triggers: Mapping[str, str] = setting(
        dict, "Triggers of plug-ins: name and dotted path.", variable=None
    )
    renderings: Mapping[str, str] = setting(
        dict, "Renderings of plug-ins: name and dotted path.", variable=None
    )
    hooks: Pieces = setting(
        (),
        "Dotted paths of hooks, asked in this order before summaries and requests; commas between.",
    )
    hook_seconds: int = setting(
        10, "A hook that takes longer is passed over.", unit="seconds", minimum=1
    )


compaction_settings = lazy_settings("COMPACTION", CompactionSettings)


def use_plugins(*, setting: str = "COMPACTION", **kwargs: Any) -> None:
    """Let profiles name what the setting adds; called when the app is ready and when it changes."""
    if setting == "COMPACTION":
        for name, registry in REGISTRIES.items():
            registry.use_plugins(getattr(compaction_settings, name.lower()))


setting_changed.connect(use_plugins, dispatch_uid="compaction.conf.plugins")

"""`compaction_settings`: the COMPACTION setting, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.signals import setting_changed

from chatapp.conf import LazySettings
from compaction.engine.registry import REGISTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """COMPACTION with its defaults; names are the setting's keys in lower case.

    A lease outlives some heartbeats, a run's budget is shorter than the queue's time-out
    (compaction.E003 and E002 check it). Budgets of an hour limit the model calls of summarising; 0
    means no limit. So many failed calls of a model in a row open its breaker for
    `breaker_seconds`. `strategies`, `cuts`, `triggers` and `renderings` are plug-ins: a name and the
    dotted path of what it stands for (compaction.engine.protocols). `environment` holds the variables of documents 001 and
    002 that are set.
    """

    default_profile: str = "bisect"
    lease_seconds: int = 90
    run_seconds: int = 480
    inline_seconds: int = 120
    queued_run_seconds: int = 120
    backoff_seconds: int = 60
    max_run_attempts: int = 3
    stored_result_chars: int = 400_000
    heartbeat_seconds: int = 15
    session_calls_per_hour: int = 400
    session_tokens_per_hour: int = 4_000_000
    owner_calls_per_hour: int = 2_000
    owner_tokens_per_hour: int = 20_000_000
    breaker_failures: int = 5
    breaker_seconds: int = 60
    environment: Mapping[str, str] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    cuts: Mapping[str, str] = field(default_factory=dict)
    triggers: Mapping[str, str] = field(default_factory=dict)
    renderings: Mapping[str, str] = field(default_factory=dict)


compaction_settings: LazySettings[CompactionSettings] = LazySettings(
    "COMPACTION", CompactionSettings
)


def use_plugins(*, setting: str = "COMPACTION", **kwargs: Any) -> None:
    """Let profiles name what the setting adds; called when the app is ready and when it changes."""
    if setting == "COMPACTION":
        for name, registry in REGISTRIES.items():
            registry.use_plugins(getattr(compaction_settings, name.lower()))


setting_changed.connect(use_plugins, dispatch_uid="compaction.conf.plugins")

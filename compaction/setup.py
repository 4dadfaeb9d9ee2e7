"""After every migrate: the presets as rows, the sweep as a schedule."""

from __future__ import annotations

from typing import Any

from compaction import schedules
from compaction.services.profiles import install_presets


def install(**kwargs: Any) -> None:
    """Store what is missing; what operators changed stays. Harmless to repeat."""
    install_presets()
    schedules.install()

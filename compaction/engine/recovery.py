"""The recovery: in which order a refused request is made smaller; a state machine without I/O.

Compact, cut tool results once, send fewer groups, give up
(docs/decisions/0011-the-order-of-recovery.md). A compaction counts only if it freed tokens, nothing
is counted anew inside a turn, and every step sends less than the one before, so no request is sent
twice.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

# How many groups of the history are sent, step after step.
HALVINGS = (20, 10, 5, 2, 1)

_FAILED_COMPACTION = re.compile(
    r"summari[sz]ation failed|auto-?compaction|compaction failed", re.IGNORECASE
)


class RecoveryAction(enum.Enum):
    """What to try next."""

    COMPACT = "compact"
    TRUNCATE = "truncate"
    HALVE = "halve"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryLimits:
    """Which steps there are; `max_compactions` 0 leaves compaction out."""

    max_compactions: int = 3
    truncate: bool = True
    halve: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryInput:
    """What the next move depends on besides the moves so far.

    `oversized`: tool results are too large, alone or together. `groups`: how many groups of history
    the refused request held. `compaction_failed`: the error speaks of a failed compaction.
    `unfinished`: messages are left that a run is going to summarise, and that no request can wait
    for.
    """

    oversized: bool = False
    groups: int = 0
    compaction_failed: bool = False
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPolicy:
    """How far one turn has come. `next` says what to try, `after_…` what came of it.

    `keeps_cut` says that a compaction keeps what the profile's cut keeps; otherwise it keeps the
    question alone.
    """

    rules: RecoveryLimits = RecoveryLimits()
    compactions: int = 0
    compaction_is_useless: bool = False
    truncated: bool = False
    groups: int | None = None
    keeps_cut: bool = False

    def next(self, recovery_input: RecoveryInput) -> RecoveryAction:
        """Return what to try now. A request that was halved once is only halved further."""
        if self.groups is None:
            if self._may_compact and not recovery_input.compaction_failed:
                return RecoveryAction.COMPACT
            if self.rules.truncate and not self.truncated and recovery_input.oversized:
                return RecoveryAction.TRUNCATE
        return (
            RecoveryAction.GIVE_UP if self.halved(recovery_input) is None else RecoveryAction.HALVE
        )

    @property
    def _may_compact(self) -> bool:
        return not self.compaction_is_useless and self.compactions < self.rules.max_compactions

    def halved(self, recovery_input: RecoveryInput) -> int | None:
        """Return how many groups a halved request holds; None when it cannot be halved further.

        Without the rule, messages are left out only until the run is done that summarises them: a
        long history would end the session otherwise.
        """
        if not (self.rules.halve or recovery_input.unfinished):
            return None
        now = (
            recovery_input.groups
            if self.groups is None
            else min(self.groups, recovery_input.groups)
        )
        return next((count for count in HALVINGS if count < now), None)

    def after_compaction(self, freed: int) -> RecoveryPolicy:
        """Return the recovery after a compaction freed that many tokens; 0 also when it failed.

        One that was no use is not tried again before the tool results have been cut. Where it kept
        what the cut keeps, the next one keeps the question alone.
        """
        if freed > 0:
            return replace(self, compactions=self.compactions + 1, keeps_cut=False)
        if self.keeps_cut:
            return replace(self, keeps_cut=False)
        return replace(self, compaction_is_useless=True)

    def after_truncation(self) -> RecoveryPolicy:
        """Return the recovery after tool results were cut, or could not be; once a turn.

        A compaction may be of use then: of less text, or of the results that could not be cut.
        """
        return replace(self, truncated=True, compaction_is_useless=False)

    def after_halving(self, groups: int) -> RecoveryPolicy:
        """Return the recovery after a request with that many groups."""
        return replace(self, groups=groups)


def speaks_of_failed_compaction(error: str) -> bool:
    """Whether a server's error says that it failed to compact by itself."""
    return bool(_FAILED_COMPACTION.search(error))

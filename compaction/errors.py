"""The errors of this package's services."""

from __future__ import annotations

from datetime import datetime


class CompactionError(Exception):
    """A service refused; the text says what happened and what to do."""


class UnfitTextError(CompactionError):
    """A text that a person wrote cannot be stored; the sentence says why."""


class BranchBusyError(CompactionError):
    """Another worker holds the branch."""


class LostRaceError(CompactionError):
    """Lease, cursor or run changed meanwhile: nothing was written."""


class RunCancelledError(CompactionError):
    """Somebody cancelled the run while it worked."""


class RunGoneError(CompactionError):
    """The run was deleted together with its session."""


class StoppingError(CompactionError):
    """The worker was asked to stop; the run goes on elsewhere."""


class MustWaitError(CompactionError):
    """No model may be called before `until`; `code` says why, for programs."""

    def __init__(self, sentence: str, *, code: str, until: datetime) -> None:
        super().__init__(sentence)
        self.code, self.until = code, until


class NoGainError(CompactionError):
    """The next request would not be smaller; the text gives the figures.

    `before` and `after` are its sizes, where they were worked out.
    """

    def __init__(self, sentence: str, *, before: int | None = None, after: int | None = None):
        super().__init__(sentence)
        self.before, self.after = before, after


class SwitchUnderWayError(CompactionError):
    """Another switch of the session is waiting or being done."""


class OutOfTimeError(CompactionError):
    """The run's time budget is used up."""


class StaleProfileError(CompactionError):
    """Another version of a profile was stored since the caller looked at it."""

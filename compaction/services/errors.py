"""The errors of this package's services."""

from __future__ import annotations


class CompactionError(Exception):
    """A service refused; the text says what happened and what to do."""


class BranchBusyError(CompactionError):
    """Another worker holds the branch."""


class LostRaceError(CompactionError):
    """Lease, cursor or run changed meanwhile: nothing was written."""


class RunCancelledError(CompactionError):
    """Somebody cancelled the run while it worked."""


class RunGoneError(CompactionError):
    """The run was deleted together with its session."""


class OutOfTimeError(CompactionError):
    """The run's time budget is used up."""


class StaleProfileError(CompactionError):
    """Another version of a profile was stored since the caller looked at it."""

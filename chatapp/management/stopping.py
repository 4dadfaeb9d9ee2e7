"""Stopping a command in an orderly way, whoever asks: a person, a supervisor, a closed terminal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

# What a shell shows for a program that Ctrl-C ended.
INTERRUPTED_STATUS = 130
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals_interrupt() -> Iterator[None]:
    """Inside the block every stop signal raises KeyboardInterrupt, as Ctrl-C does.

    SIGINT too: a shell starts background jobs with it ignored. Outside the main thread, where
    Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt

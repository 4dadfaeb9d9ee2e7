"""Exact token counts for the demo, if they can be had in a few seconds."""

from __future__ import annotations

import io
import threading

from django.core.management import call_command
from django.core.management.base import CommandError

from chatapp.conf import chatapp_settings
from chatapp.llm.encodings import EncodingUnavailableError, find_rank_file

ENCODING = "o200k_base"
TIMEOUT_SECONDS = 3.0
# The time-out is for each wait on the network; a name server or a slow line can take many of them.
PATIENCE_SECONDS = 8.0


def load_encoding_quickly() -> str:
    """Return a sentence on how tokens are counted, having tried to make the counts exact."""
    try:
        if find_rank_file(ENCODING, chatapp_settings.encodings_dir):
            return f"{ENCODING} is already there: token counts are exact"
    except EncodingUnavailableError:
        pass
    outcome: list[bool] = []
    # A thread that nobody waits for in the end: urlopen cannot be told to give up altogether.
    attempt = threading.Thread(target=_attempt, args=(outcome,), daemon=True)
    attempt.start()
    attempt.join(PATIENCE_SECONDS)
    if outcome == [True]:
        return f"{ENCODING} loaded: token counts are exact"
    return "not available: token counts are estimated (manage.py load_encodings)"


def _attempt(outcome: list[bool]) -> None:
    quiet = io.StringIO()
    try:
        call_command(
            "load_encodings", ENCODING, timeout=TIMEOUT_SECONDS, stdout=quiet, stderr=quiet
        )
    except (CommandError, OSError):
        outcome.append(False)
    else:
        outcome.append(True)

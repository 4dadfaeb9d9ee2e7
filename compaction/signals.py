"""Signals: what compaction has done, told after the commit with ids and numbers alone.

They are notices: nothing waits for a receiver, and one that fails is logged. What may change or
stop a compaction is a hook (compaction.hooks). Every signal comes with `session` and `branch`, ids
as texts.

`compacted`: `run`, `summary`, `trigger`, `reason`, `tokens_before` and `tokens_after` of the next
request, `messages` that the summary covers, `is_draft` (made ahead, not sent yet), `from_hook`.
`compaction_failed`: `run`, `trigger`, `reason`, `code`; `aborted` where somebody or a hook stopped
it, `will_retry` where a refused request waits for what comes next.
`branch_summarised`: `run`, `summary`, `from_branch`, `messages`, `from_hook`; `branch` is the one
that got the summary.
`branch_switched`: `from_branch` is the one that was left, `summary` is None without one.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

logger = logging.getLogger(__name__)

compacted = Signal()
compaction_failed = Signal()
branch_summarised = Signal()
branch_switched = Signal()
# For this app alone: a memory run waits for a worker (`run_id`).
memory_run_waiting = Signal()


def send_after_commit(signal: Signal, *, sender: type, **facts: Any) -> None:
    """Send a signal when the transaction commits, at once where none is open.

    Ids become texts, so that no receiver holds a row.
    """
    told = {name: one if _is_plain(one) else str(one) for name, one in facts.items()}
    transaction.on_commit(partial(_send, signal, sender, told), robust=True)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _send(signal: Signal, sender: type, facts: dict[str, Any]) -> None:
    for receiver, answer in signal.send_robust(sender, **facts):
        if isinstance(answer, Exception):
            logger.error("A receiver of compaction's signals failed: %s", receiver, exc_info=answer)

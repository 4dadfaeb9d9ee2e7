"""What waits beyond the tail of a sliding window: how much, how far it is, and in how many runs."""

from __future__ import annotations

import math

from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin import cells
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.policy.window import archives, batch_size

Line = tuple[str, SafeString | str]


def has_window(snapshot: BranchSnapshot) -> bool:
    """Whether the profile has a rule about the messages beyond its tail, or limits a run's."""
    profile = snapshot.profile
    return profile.enabled and (profile.counts_window or profile.batch_messages > 0)


def backlog_lines(snapshot: BranchSnapshot) -> list[Line]:
    """Return what waits and how far it is summarised; nothing for profiles without a window."""
    if not has_window(snapshot):
        return []
    lines: list[Line] = [("Waiting beyond the tail", waiting_words(snapshot))]
    if snapshot.waiting:
        lines.append(("Summarised of what left the tail", _progress(snapshot)))
    return lines


def waiting_words(snapshot: BranchSnapshot) -> str:
    """Return how many messages wait, and in how many runs of which size they go."""
    waiting, tail = snapshot.waiting, snapshot.profile.tail
    if not waiting:
        return f"No message: the newest {tail:,} stay verbatim."
    said = "1 message waits" if waiting == 1 else f"{waiting:,} messages wait"
    return f"{said}; {_runs_words(snapshot)}."


def _runs_words(snapshot: BranchSnapshot) -> str:
    profile, waiting = snapshot.profile, snapshot.waiting
    failures = snapshot.state.failures
    size = batch_size(profile, waiting=waiting, failures=failures)
    runs = math.ceil(waiting / size)
    said = "one run takes all" if runs == 1 else f"about {runs:,} runs of {size:,}"
    if archives(profile, failures):
        return f"{said}; the next one is stored unsummarised, because runs keep failing"
    if size < batch_size(profile, waiting=waiting, failures=0):
        return f"{said}, fewer at once because runs failed"
    return said


def _progress(snapshot: BranchSnapshot) -> SafeString:
    covered, waiting = snapshot.state.covered_messages, snapshot.waiting
    words = f"{covered:,} of {covered + waiting:,} messages"
    return format_html("{} {}", words, cells.bar(covered, covered + waiting, words))

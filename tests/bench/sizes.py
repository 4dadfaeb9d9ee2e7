"""How large the benchmarks are: as the table wants them, or tiny, to see that they still run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes in messages, unless the name says otherwise."""

    repeats: int = 30
    histories: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    largest_unsummarised: int = 10_000
    turns: tuple[int, ...] = (1_000, 10_000, 100_000)
    turns_measured: int = 8
    compactions: tuple[int, ...] = (1_000, 10_000)
    compaction_repeats: int = 3
    backlogs: tuple[int, ...] = (10_000, 30_000)
    looked_at: int = 200_000
    commanded: int = 1_000_000
    # As many as are screened together.
    examined: int = 200
    peers: tuple[int, ...] = (1_000, 10_000)
    counted_characters: int = 2_000_000
    imported: int = 10_000
    migrated: int = 400_000
    imported_tree_bytes: int = 50_000_000
    requests: int = 400
    writers: tuple[int, ...] = (1, 4, 8)
    writing_seconds: float = 4.0
    paced_turns: int = 240
    pace_seconds: float = 0.25
    summariser_seconds: float = 0.5
    ages: tuple[int, ...] = (100, 1_000, 10_000)
    windows: int = 5
    fork_depths: tuple[int, ...] = (1, 60, 5_000)
    hammering_threads: int = 20
    hammering_seconds: float = 20.0
    hostile_turns: int = 70
    hostile_messages: int = 200
    hostile_bytes: int = 15_000_000
    hostile_lines: int = 3_000_000
    abridged: tuple[int, ...] = (1_000, 10_000)
    abridged_conversations: int = 1_000
    replayed: int = 10_000


TINY = Sizes(
    repeats=1,
    histories=(20,),
    largest_unsummarised=20,
    turns=(20,),
    turns_measured=1,
    compactions=(20,),
    compaction_repeats=1,
    backlogs=(130,),
    looked_at=600,
    commanded=600,
    examined=2,
    peers=(20,),
    counted_characters=2_000,
    imported=20,
    migrated=160,
    imported_tree_bytes=100_000,
    requests=6,
    writers=(1,),
    writing_seconds=0.2,
    paced_turns=3,
    pace_seconds=0.01,
    summariser_seconds=0.0,
    ages=(100,),
    windows=1,
    fork_depths=(3,),
    hammering_threads=4,
    hammering_seconds=1.5,
    hostile_turns=9,
    hostile_messages=3,
    hostile_bytes=10_000,
    hostile_lines=3_000,
    abridged=(20,),
    abridged_conversations=3,
    replayed=60,
)

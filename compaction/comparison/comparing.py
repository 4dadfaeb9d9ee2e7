"""Sessions replayed under several profiles, one by one, and what came of it side by side.

Nothing is stored, and no lease is taken: people go on talking meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.db import Error

from chatapp.llm.registry import UnknownModelError
from chatapp.models import Session
from compaction.comparison.candidates import ComparedProfile, ComparedSummariser, is_long
from compaction.comparison.reading import StoredConversation
from compaction.conf import compaction_settings
from compaction.engine.policy.gates import gate_of
from compaction.engine.replay.figures import ReplayFigures
from compaction.engine.replay.replaying import ProfileReplay, ReplayOptions
from compaction.engine.replay.state import ReplayModel
from compaction.engine.replay.survival import Named

logger = logging.getLogger(__name__)
# How often somebody is told how far a replay has come.
MESSAGES_BETWEEN = 100


class ComparisonCancelled(Exception):  # noqa: N818 - it is an outcome, not a fault
    """Somebody wanted no more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSession:
    """One session of a comparison; with a `problem` it was left out, and that says why."""

    session: str
    messages: int = 0
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class ProfileComparison:
    """What came of it: a row of figures for each profile, over all sessions together."""

    summariser: ComparedSummariser
    sessions: list[ComparedSession] = field(default_factory=list)
    rows: list[ReplayFigures] = field(default_factory=list)

    @property
    def approximated(self) -> int:
        """How many conversations were so long that summaries stood in for those of a profile."""
        if self.summariser.asks_model:
            return 0
        return sum(is_long(one.messages) for one in self.sessions)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "model": self.summariser.name,
            "is_estimate": self.summariser.is_estimate,
            "asks_model": self.summariser.asks_model,
            "sessions": [
                {"session": one.session, "messages": one.messages, "problem": one.problem}
                for one in self.sessions
            ],
            "messages": sum(one.messages for one in self.sessions),
            "approximated": self.approximated,
            "profiles": [row.as_dict() for row in self.rows],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonProgress:
    """How far a comparison has come; `done` and `total` are messages times profiles."""

    done: int
    total: int
    profile: str
    session: str


def compare(
    sessions: Sequence[Session],
    candidates: Sequence[ComparedProfile],
    summariser: ComparedSummariser,
    *,
    on_progress: Callable[[ComparisonProgress], None] = lambda progress: None,
) -> ProfileComparison:
    """Return what each profile makes of the sessions' active branches.

    A profile that cannot be used, and a session whose model is gone, are left out with a sentence.
    What `on_progress` raises ends the comparison (ComparisonCancelled).
    """
    rows = [ReplayFigures(profile=one.name) for one in candidates]
    found = ProfileComparison(summariser=summariser, rows=rows)
    weights = [session.branch.message_count for session in sessions]
    total, done = sum(weights) * len(candidates), 0
    for session, weight in zip(sessions, weights, strict=True):
        try:
            conversation = StoredConversation(session)
        except UnknownModelError as error:
            found.sessions.append(ComparedSession(session=str(session.pk), problem=str(error)))
            done += weight * len(candidates)
            continue
        named = Named()
        for page in conversation.pages():
            named.add(page)
        for candidate, figures in zip(candidates, rows, strict=True):
            tell = partial(
                _tell, on_progress, done=done, total=total, candidate=candidate, session=session
            )
            _replay(conversation, candidate, summariser, named=named, figures=figures, tell=tell)
            done += weight
        count = len(conversation.sums)
        found.sessions.append(ComparedSession(session=str(session.pk), messages=count))
    return found


def _tell(
    on_progress: Callable[[ComparisonProgress], None],
    messages: int,
    *,
    done: int,
    total: int,
    candidate: ComparedProfile,
    session: Session,
) -> None:
    if messages % MESSAGES_BETWEEN == 0:
        on_progress(
            ComparisonProgress(
                done=min(total, done + messages),
                total=total,
                profile=candidate.name,
                session=str(session.pk),
            )
        )


def _replay(
    conversation: StoredConversation,
    candidate: ComparedProfile,
    summariser: ComparedSummariser,
    *,
    named: Named,
    figures: ReplayFigures,
    tell: Callable[[int], None],
) -> None:
    """Add to one profile's figures; a profile or plug-in that fails is a sentence among them."""
    if candidate.problem:
        figures.note(candidate.problem)
        return
    own, profile = conversation.model, candidate.parameters
    gate = gate_of(profile, conversation.metadata)
    if gate:
        # As in the application: no rule counts, and all is sent.
        profile = replace(profile, enabled=False)
    try:
        replay = ProfileReplay(
            conversation,
            profile,
            figures=figures,
            model=ReplayModel(
                window=own.context_window,
                max_output=own.max_output,
                scale=own.scale,
                counter=conversation.counter,
                result_window=summariser.window_for(own),
                frame_tokens=own.message_frame_tokens,
                is_single=own.single_leading_system,
            ),
            summarizer=summariser.summarizer(
                own, profile, messages=len(conversation.sums), counter=conversation.counter
            ),
            options=ReplayOptions(
                inline_calls=compaction_settings.inline_calls,
                backoff_seconds=compaction_settings.backoff_seconds,
                input_price=own.prices.input,
                clock=summariser.clock,
                on_messages=tell,
            ),
        )
        if gate:
            figures.note(gate)
        replay.run(named)
    except (ComparisonCancelled, Error):
        raise
    except Exception as error:
        logger.exception("The profile %r could not be replayed", candidate.name)
        figures.note(f"The replay failed ({type(error).__name__}: {error}).")

"""Which models write a session's summaries, and what a summary's row may call its writer.

It stands apart from what asks them (summarizer.py): lists, prices and memories want to know who
would write, and most processes that start never summarise anything. So no summariser is imported
here, nor anything that only one of them needs.
"""

from __future__ import annotations

import logging

from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, UnknownModelError, get_model
from chatapp.models import Session
from compaction.branches.snapshot import BranchSnapshot
from compaction.engine.parameters import Profile
from compaction.limits import circuit_breaker

TOKENS_WITHOUT_MODEL = 200_000
"""Where sentences will be chosen in the end, as much is read at once: a second or two of work."""
# In `derived`.
_MODELS = "summarising models"
logger = logging.getLogger(__name__)


def summarising_models(
    session: Session, profile: Profile, *, known: ModelConfig | None = None
) -> list[ModelConfig]:
    """Return the models that write a profile's summaries, in order, with what servers taught.

    `known` is one of which that was read just now. A name that is gone is left out where others are
    there; UnknownModelError where none is.
    """
    found: dict[str, ModelConfig] = {}
    unknown: UnknownModelError | None = None
    for named in profile.summary_models:
        try:
            model = get_model(named or session.model)
            if known is not None and known.alias == model.alias:
                model = known
            else:
                model = with_learned_limits(model)
        except UnknownModelError as error:
            unknown = unknown or error
        else:
            found.setdefault(model.alias, model)
    if unknown is not None and not found:
        raise unknown
    if unknown is not None:
        logger.warning("A summarising model is left out: %s", unknown)
    return list(found.values())


def models_of(snapshot: BranchSnapshot) -> list[ModelConfig]:
    """Return the models that write a branch's summaries, looked for once a snapshot."""
    found: list[ModelConfig] | None = snapshot.derived.get(_MODELS)
    if found is None:
        found = summarising_models(snapshot.session, snapshot.summary_profile, known=snapshot.model)
        snapshot.derived[_MODELS] = found
    return found


def tokens_of_calls(snapshot: BranchSnapshot, calls: int) -> int | None:
    """Return the stored tokens that a branch's first model reads in so many calls; None for any.

    More where its compactions fail: most of a long backlog will be chosen without it.
    """
    try:
        first = models_of(snapshot)[0]
    except UnknownModelError:
        # Whoever asks a model hears of it; a hook may stand in for one.
        return None
    if first.context_window <= 0:
        return None
    most = calls * first.context_window
    # Asked only where the newest summary came to be without it: so a run asks the same of any
    # backlog, and nothing more where all is well.
    asks_model = snapshot.summary_profile.summariser != "extractive"
    was_chosen = asks_model and any(row.model == "extractive" for row in snapshot.newest)
    is_failing = was_chosen and circuit_breaker.is_failing(first.alias)
    return max(most, TOKENS_WITHOUT_MODEL) if is_failing else most


def summarising_model(session: Session, profile: Profile) -> ModelConfig:
    """Return the model that is asked first."""
    return summarising_models(session, profile)[0]


def summariser_names(session: Session, profile: Profile) -> list[str]:
    """Return what a summary's row may call its writer: the models' names, or `extractive`.

    The names are the configured ones; what a server calls itself stands in the steps.
    """
    if profile.summariser == "extractive":
        return ["extractive"]
    return [model.name for model in summarising_models(session, profile)]

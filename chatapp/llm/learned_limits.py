"""What model servers teach: their real window, their longest answer, their way of counting.

What a refusal teaches is remembered per model and used by everything that asks how much fits
(`with_learned_limits`). All workers share a model's row, so that it is written only where what is
decided by it changes: of many that learn the same at once, one writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from chatapp.compiled import compiled_read
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.registry import ModelConfig, all_models, get_model
from chatapp.messages.outgoing import FLAT
from chatapp.models import LearnedLimits
from chatapp.round_trips import Statement

# Smaller windows and answers than these are misread numbers.
SMALLEST_WINDOW_TOKENS = 256
SMALLEST_OUTPUT_TOKENS = 16
# Below this many counted tokens the frame of a request matters more than the way of counting.
SMALLEST_SAMPLE_TOKENS = 1000
# One of our tokens is never more than so many of a server's; what says otherwise is misread.
LARGEST_RATIO, SMALLEST_RATIO = 3.0, 0.4
# A report that differs by less teaches nothing new, and nothing is written.
NEWS = 0.1
REMEMBERED = timedelta(days=30)
"""What a refusal taught is tried anew after that time."""
# A conversation as one text costs its tools and the server's cache: it is soon tried without.
_REMEMBERED = {FLAT: timedelta(hours=1)}
WEIGHT_OF_THE_NEWEST = 0.3


def with_learned_limits(model: ModelConfig) -> ModelConfig:
    """Return the model with what its server taught; the settings hold where it taught nothing.

    A window or an answer is only ever made smaller: what the settings say may be on purpose.
    """
    return as_taught(model, asked_limits(model).run())


def asked_limits(model: ModelConfig) -> Statement[list[LearnedLimits]]:
    """Return the read of what a model's server taught, for as_taught."""
    server, name = _key_of(model)
    return _taught.asked(server=server, name=name, most=1)


def as_taught(model: ModelConfig, found: Sequence[LearnedLimits]) -> ModelConfig:
    """Return the model with what was found of its server's lessons."""
    return _limited(model, found[0]) if found else model


@compiled_read
def _taught(*, server: str, name: str) -> QuerySet[LearnedLimits]:
    return LearnedLimits.objects.filter(server=server, name=name)


def all_with_learned_limits() -> dict[str, ModelConfig]:
    """Return every configured model by alias with what its server taught; one query for all."""
    taught = {(row.server, row.name): row for row in LearnedLimits.objects.all()}
    return {
        alias: _limited(model, row) if (row := taught.get(_key_of(model))) else model
        for alias, model in all_models().items()
    }


def _limited(model: ModelConfig, limits: LearnedLimits) -> ModelConfig:
    return replace(
        model,
        context_window=_smaller(model.context_window, _window_of(limits, model)),
        max_output=_smaller(model.max_output, limits.max_output),
        tokens_per_count=limits.tokens_per_count or model.tokens_per_count,
        adaptations=model.adaptations | _learned_adaptations(limits, model),
    )


def _learned_adaptations(limits: LearnedLimits, model: ModelConfig) -> frozenset[str]:
    """Return the changes that refusals taught, unless the entry was changed since."""
    if limits.configured_entry != _entry_of(model):
        return frozenset()
    return still_known(limits.adaptations)


def still_known(learned: Mapping[str, Any]) -> frozenset[str]:
    """Return the codes that were learned not too long ago: servers change, and are asked anew."""
    now = timezone.now()
    return frozenset(
        code
        for code, known in learned.items()
        if isinstance(known, Mapping)
        and str(known.get("at", "")) >= (now - _REMEMBERED.get(code, REMEMBERED)).isoformat()
    )


def remembered(codes: Iterable[str]) -> dict[str, Any]:
    """Return what is stored of codes that were learned now; the reverse of `still_known`."""
    return {code: {"at": timezone.now().isoformat()} for code in codes}


def _entry_of(model: ModelConfig) -> str:
    """Return what tells an entry of the settings from a changed one."""
    entry = get_model(model.alias)
    told = (entry.backend, entry.name, entry.base_url, *sorted(entry.adaptations))
    return hashlib.sha256("|".join(told).encode()).hexdigest()


def learn_adaptations(model: ModelConfig, codes: Iterable[str]) -> None:
    """Remember which changes made a server answer that had refused; see adaptations.py."""
    now = remembered(codes)
    if not now:
        return
    limits = _rows(model).first()
    entry = _entry_of(model)
    known = limits.adaptations if limits and limits.configured_entry == entry else {}
    if now.keys() <= still_known(known):
        return
    _write(model, {"adaptations": {**known, **now}, "configured_entry": entry})


def _window_of(limits: LearnedLimits, model: ModelConfig) -> int | None:
    """Return the window that was taught, unless the operator has set another one since."""
    same = limits.configured_window in (None, model.context_window)
    return limits.context_window if same else None


def _smaller(configured: int, learnt: int | None) -> int:
    return configured if learnt is None else min(configured, learnt)


def _key_of(model: ModelConfig) -> tuple[str, str]:
    return model.base_url[:300], model.name[:200]


def _rows(model: ModelConfig) -> Any:
    server, name = _key_of(model)
    return LearnedLimits.objects.filter(server=server, name=name)


def learn_from_error(model: ModelConfig, error: ModelError, counted: int) -> None:
    """Remember the numbers of a refusal: the window or the longest answer, and the counting.

    A limit per minute is a contract's, not the model's: it is not remembered.
    """
    payload: dict[str, Any] = {}
    allowed = error.allowed or 0
    if error.kind is ErrorKind.OUTPUT_LIMIT:
        if SMALLEST_OUTPUT_TOKENS <= allowed < model.max_output:
            payload["max_output"] = allowed
    elif error.kind is ErrorKind.CONTEXT_OVERFLOW:
        if SMALLEST_WINDOW_TOKENS <= allowed < model.context_window:
            configured = get_model(model.alias).context_window
            payload |= {"context_window": allowed, "configured_window": configured}
        window = min(model.context_window, payload.get("context_window", model.context_window))
        ratio = _ratio_of_refusal(model, error.observed, counted, window)
        if ratio is not None and ratio > model.tokens_per_count * (1 + NEWS):
            payload["tokens_per_count"] = ratio
    if payload and (news := _news(_rows(model).first(), payload)):
        _write(model, news)


def _news(limits: LearnedLimits | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a refusal's lesson the row does not say: another worker may have learnt it."""
    if limits is None:
        return dict(payload)
    news = {key: value for key, value in payload.items() if getattr(limits, key) != value}
    known, ratio = limits.tokens_per_count, news.get("tokens_per_count")
    if ratio is not None and known is not None and ratio <= known * (1 + NEWS):
        del news["tokens_per_count"]
    return news


def _ratio_of_refusal(
    model: ModelConfig, observed: int | None, counted: int, window: int
) -> float | None:
    """Return how many tokens one of ours is at least, or None where that cannot be told.

    Servers name the request's tokens with or without the answer's room: the smaller reading counts.
    Without a number, a request that fits by our count and was refused had at least the window's.
    """
    if counted < SMALLEST_SAMPLE_TOKENS:
        return None
    if observed:
        ratio = (observed - model.max_output) / counted
    elif 2 * counted >= window:
        ratio = window / (counted + model.max_output)
    else:
        return None
    return ratio if 1 < ratio <= LARGEST_RATIO else None


def learn_from_usage(model: ModelConfig, reported: int | None, counted: int) -> None:
    """Remember how many tokens one of ours is; `reported` are the request's by the server."""
    if not reported or counted < SMALLEST_SAMPLE_TOKENS:
        return
    ratio = reported / counted
    if not SMALLEST_RATIO <= ratio <= LARGEST_RATIO:
        return
    if abs(ratio / model.tokens_per_count - 1) <= NEWS or max(ratio, model.tokens_per_count) < 1:
        return
    limits = _rows(model).first()
    stored = limits.tokens_per_count if limits else None
    known = stored or 1.0
    if abs(ratio / known - 1) <= NEWS:
        return  # learnt by another since this one's request was put together
    learnt = known + (ratio - known) * _weight(ratio, known)
    # Below one it makes no room, whatever it is (ModelConfig.scale).
    if stored is None or max(1.0, learnt) != max(1.0, stored):
        _write(model, {"tokens_per_count": learnt})


def forget_window(model: ModelConfig, reported: int) -> None:
    """Forget a window that was learnt, once the server has answered a larger request."""
    if reported > model.context_window:
        learnt = _rows(model).filter(context_window__lt=reported)
        learnt.update(context_window=None, updated_at=timezone.now())


def _weight(ratio: float, known: float) -> float:
    """Return how much the newest report counts: at once where we would send too much."""
    return 1.0 if ratio > known else WEIGHT_OF_THE_NEWEST


def _write(model: ModelConfig, payload: Mapping[str, Any]) -> None:
    server, name = _key_of(model)
    LearnedLimits.objects.update_or_create(
        server=server, name=name, defaults={**payload, "updated_at": timezone.now()}
    )

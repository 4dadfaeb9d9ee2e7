"""What servers teach about themselves (learned_limits.py), and where it is used."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from django.db import connection

from chatapp.context.assembly import Account
from chatapp.llm.errors import ErrorKind, ModelError
from chatapp.llm.learned_limits import (
    forget_window,
    learn_adaptations,
    learn_from_error,
    learn_from_usage,
    with_learned_limits,
)
from chatapp.llm.registry import ModelConfig
from chatapp.models import LearnedLimits

pytestmark = pytest.mark.django_db

MODEL = ModelConfig(
    alias="default",
    backend="x",
    name="m",
    context_window=32_000,
    max_output=1_000,
    base_url="http://127.0.0.1:1/v1",
)


@pytest.fixture(autouse=True)
def configured(use_models):
    """The settings say the same of the model as MODEL does."""
    use_models({"default": {"BACKEND": "x", "NAME": "m", "CONTEXT_WINDOW": 32_000}})


def overflow(**numbers) -> ModelError:
    return ModelError(ErrorKind.CONTEXT_OVERFLOW, **numbers)


def test_a_smaller_window_is_learnt_and_used():
    learn_from_error(MODEL, overflow(allowed=8_192), 500)
    assert with_learned_limits(MODEL).context_window == 8_192


def test_a_larger_window_than_configured_is_not_used():
    learn_from_error(MODEL, overflow(allowed=128_000), 500)
    assert with_learned_limits(MODEL).context_window == 32_000
    assert not LearnedLimits.objects.exists()


def test_a_misread_number_teaches_nothing():
    learn_from_error(MODEL, overflow(allowed=1), 500)
    assert not LearnedLimits.objects.exists()


def test_a_limit_per_minute_is_no_window():
    error = ModelError(ErrorKind.REQUEST_OVER_RATE, allowed=8_000, observed=9_000)
    learn_from_error(MODEL, error, 9_000)
    assert not LearnedLimits.objects.exists()


def test_a_refusal_that_names_the_request_teaches_the_counting():
    # 33 000 with room for an answer of 1 000: 32 000 of the server's are 20 000 of ours.
    learn_from_error(MODEL, overflow(allowed=32_000, observed=33_000), 20_000)
    assert with_learned_limits(MODEL).tokens_per_count == pytest.approx(1.6)


def test_a_refusal_without_numbers_teaches_that_our_count_is_too_low():
    learn_from_error(MODEL, overflow(), 24_000)
    assert with_learned_limits(MODEL).tokens_per_count == pytest.approx(32_000 / 25_000)


def test_a_small_request_teaches_nothing_about_counting():
    learn_from_error(MODEL, overflow(observed=40_000), 900)
    learn_from_usage(MODEL, 2_000, 900)
    assert not LearnedLimits.objects.exists()


def test_usage_above_our_count_is_believed_at_once_and_below_it_slowly():
    learn_from_usage(MODEL, 15_000, 10_000)
    assert with_learned_limits(MODEL).tokens_per_count == pytest.approx(1.5)
    learn_from_usage(with_learned_limits(MODEL), 10_000, 10_000)
    assert with_learned_limits(MODEL).tokens_per_count == pytest.approx(1.35)


def test_usage_that_agrees_writes_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        learn_from_usage(MODEL, 10_500, 10_000)


def test_a_count_that_is_too_high_never_makes_room():
    learn_from_usage(MODEL, 6_000, 10_000)
    model = with_learned_limits(MODEL)
    assert model.tokens_per_count < 1
    assert model.scale == 1.0


def test_lessons_are_of_one_server_and_model():
    learn_from_error(MODEL, overflow(allowed=8_192), 500)
    assert with_learned_limits(replace(MODEL, name="other")).context_window == 32_000
    assert with_learned_limits(replace(MODEL, base_url="")).context_window == 32_000


def test_the_account_measures_room_as_the_server_counts():
    account = Account(kept=1_000, reserve=100, window=2_000, tokens_per_count=1.5)
    assert (account.used, account.room, account.free) == (1_000, 500, 400)


def test_a_window_that_was_learnt_is_forgotten_when_the_server_answers_more():
    learn_from_error(MODEL, overflow(allowed=300), 500)
    assert with_learned_limits(MODEL).context_window == 300
    forget_window(with_learned_limits(MODEL), 299)
    assert with_learned_limits(MODEL).context_window == 300
    forget_window(with_learned_limits(MODEL), 301)
    assert with_learned_limits(MODEL).context_window == 32_000


def test_a_window_that_was_learnt_yields_to_a_changed_setting():
    learn_from_error(MODEL, overflow(allowed=8_192), 500)
    assert with_learned_limits(MODEL).context_window == 8_192
    assert with_learned_limits(replace(MODEL, context_window=16_000)).context_window == 16_000


# --- written only where it changes what is decided ------------------------------------------------


def written() -> list:
    return list(LearnedLimits.objects.values_list("updated_at", flat=True))


def test_of_many_workers_that_learn_the_same_of_usage_one_writes():
    """Each put its request together before any of them had learnt."""
    learn_from_usage(MODEL, 15_000, 10_000)
    first = written()
    for reported in (15_000, 15_400, 14_200):
        learn_from_usage(MODEL, reported, 10_000)
    assert written() == first
    assert with_learned_limits(MODEL).tokens_per_count == pytest.approx(1.5)


def test_of_many_workers_that_are_refused_alike_one_writes():
    error = overflow(allowed=8_192, observed=9_000)
    learn_from_error(MODEL, error, 5_000)
    first = written()
    learn_from_error(MODEL, error, 5_000)
    learn_from_error(MODEL, overflow(allowed=8_192), 500)
    assert written() == first


def test_a_smaller_ratio_of_a_late_refusal_does_not_undo_a_larger_one():
    learn_from_error(MODEL, overflow(allowed=32_000, observed=33_000), 20_000)
    learn_from_error(MODEL, overflow(allowed=32_000, observed=29_000), 20_000)
    assert with_learned_limits(MODEL).tokens_per_count == pytest.approx(1.6)


def test_below_one_nothing_is_decided_and_nothing_written():
    learn_from_usage(MODEL, 8_000, 10_000)
    first = written()
    learn_from_usage(with_learned_limits(MODEL), 5_000, 10_000)
    assert written() == first
    learn_from_usage(with_learned_limits(MODEL), 12_000, 10_000)
    assert with_learned_limits(MODEL).scale == pytest.approx(1.2)


def test_a_window_that_nobody_learnt_is_not_forgotten_with_every_answer():
    learn_from_error(MODEL, ModelError(ErrorKind.OUTPUT_LIMIT, allowed=500), 500)
    first = written()
    forget_window(MODEL, 40_000)
    assert written() == first


def test_a_change_that_is_known_is_written_once():
    learn_adaptations(MODEL, ["flat"])
    first = written()
    learn_adaptations(MODEL, ["flat"])
    assert written() == first
    learn_adaptations(MODEL, ["flat", "no_tools"])
    assert set(LearnedLimits.objects.get().adaptations) == {"flat", "no_tools"}


@pytest.mark.django_db(transaction=True)
def test_workers_that_learn_at_once_leave_one_row_with_all_of_it():
    together = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            together.wait(timeout=30)
            if number % 2:
                learn_from_error(MODEL, overflow(allowed=8_192), 500)
            else:
                learn_from_usage(MODEL, 15_000, 10_000)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert LearnedLimits.objects.count() == 1
    known = with_learned_limits(MODEL)
    assert (known.context_window, known.tokens_per_count) == (8_192, pytest.approx(1.5))

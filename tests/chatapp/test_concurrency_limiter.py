"""How many slow requests compute at one moment."""

from __future__ import annotations

import threading
import time

import pytest

from chatapp import database
from chatapp.concurrency import ConcurrencyLimiter, slow_starts

FOR_EVER = 60.0


class Begun:
    """Threads that compute until they are told to do something else."""

    def __init__(self, limiter: ConcurrencyLimiter) -> None:
        self.limiter = limiter
        self.inside: list[int] = []
        self.waits = threading.Event()
        self.done = threading.Event()
        self.threads: list[threading.Thread] = []

    def add(self, number: int) -> None:
        thread = threading.Thread(target=self._work, args=(number,))
        self.threads.append(thread)
        thread.start()

    def _work(self, number: int) -> None:
        with self.limiter.computing():
            self.inside.append(number)
            self.waits.wait(20)
            self.limiter.give_back()
            self.done.wait(20)

    def end(self) -> None:
        self.waits.set()
        self.done.set()
        for thread in self.threads:
            thread.join(20)


@pytest.fixture
def begun():
    made: list[Begun] = []

    def begin(count: int, **options) -> Begun:
        limiter = ConcurrencyLimiter(**{"at_once": 2, "seconds": FOR_EVER} | options)
        made.append(Begun(limiter))
        for number in range(count):
            made[-1].add(number)
        return made[-1]

    yield begin
    for one in made:
        one.end()


def comes_true(condition) -> bool:
    """Whether a condition holds within some seconds."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_no_more_begin_than_may_at_once(begun):
    work = begun(7)
    assert comes_true(lambda: len(work.inside) == 2)
    time.sleep(0.1)
    assert len(work.inside) == 2


def test_whoever_waits_for_something_makes_room_though_it_is_not_done(begun):
    work = begun(7)
    work.waits.set()
    assert comes_true(lambda: len(work.inside) == 7)
    assert all(thread.is_alive() for thread in work.threads)


def test_one_that_computes_for_long_stops_counting(begun):
    work = begun(5, seconds=0.05)
    assert comes_true(lambda: len(work.inside) == 5)


def test_an_error_makes_room():
    limiter = ConcurrencyLimiter(at_once=1, seconds=FOR_EVER)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"), limiter.computing():
            raise ValueError("broken")


def test_giving_back_what_one_has_not_changes_nothing(begun):
    work = begun(4)
    assert comes_true(lambda: len(work.inside) == 2)
    for _ in range(5):
        work.limiter.give_back()
    time.sleep(0.1)
    assert len(work.inside) == 2


def test_a_place_that_was_taken_away_is_not_given_back_twice():
    limiter = ConcurrencyLimiter(at_once=1, seconds=0.0)
    other = limiter.computing()
    with limiter.computing():
        taking = threading.Thread(target=other.__enter__)
        taking.start()
        taking.join(10)
        assert not taking.is_alive()
    assert list(limiter._since) == [taking.ident]


@pytest.mark.django_db
def test_waiting_for_a_model_makes_room():
    with slow_starts.computing():
        assert threading.get_ident() in slow_starts._since
        database.release_connection()
        assert threading.get_ident() not in slow_starts._since

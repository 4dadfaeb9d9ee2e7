"""Signs of life while a block runs: one helper for imports, bulk jobs and runs."""

import logging
import threading

import pytest
from django.db import DatabaseError, transaction

from chatapp.database import beating

pytestmark = pytest.mark.django_db(transaction=True)
QUICK = 0.01


class Signs:
    """Counts the signs that were asked for; `fails` of the first are refused, `most` are given."""

    def __init__(self, *, fails: int = 0, most: int = 1_000_000) -> None:
        self.given, self._fails, self._most = 0, fails, most
        self._came = threading.Condition()

    def __call__(self) -> bool:
        with self._came:
            self.given += 1
            self._came.notify_all()
        if self.given <= self._fails:
            raise DatabaseError("gone away")
        return self.given < self._most

    def wait_for(self, number: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: self.given >= number, timeout=30)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "heartbeat"]


def test_signs_are_given_until_the_block_ends():
    sign = Signs()
    with beating(sign, seconds=QUICK, who="It"):
        sign.wait_for(3)
    assert threads() == []


def test_a_block_that_fails_ends_them_too():
    with pytest.raises(KeyboardInterrupt), beating(Signs(), seconds=QUICK, who="It"):
        raise KeyboardInterrupt
    assert threads() == []


def test_what_was_lost_is_not_taken_again():
    sign = Signs(most=2)
    with beating(sign, seconds=QUICK, who="It"):
        sign.wait_for(2)
        for thread in threading.enumerate():
            if thread.name == "heartbeat":
                thread.join(timeout=30)
        assert threads() == []
    assert sign.given == 2


def test_a_database_that_is_back_gets_the_next_sign(caplog):
    sign = Signs(fails=2)
    with caplog.at_level(logging.WARNING), beating(sign, seconds=QUICK, who="Import 7"):
        sign.wait_for(4)
    assert caplog.text.count("Import 7 could not give a sign of life.") == 2


def test_inside_a_transaction_nothing_beats():
    sign = Signs()
    with transaction.atomic(), beating(sign, seconds=QUICK, who="It"):
        assert threads() == []
    assert sign.given == 0

"""Several writers of profiles at once, with real transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compaction.errors import StaleProfileError
from compaction.models import CompactionProfile
from compaction.profiles import find_profile, install_presets, make_default, save_profile
from tests.chatapp.test_concurrency import side_by_side

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def preset(transactional_db) -> None:
    """The rows that migrate installs; a test before may have emptied the tables."""
    install_presets()


def save(name: str, limit: int, **more) -> Callable[[], object]:
    return lambda: save_profile(name=name, parameters={"message_limit": limit}, **more)


def test_two_savers_make_two_versions_one_after_the_other():
    save_profile(name="mine", parameters={}, description="Kept.")
    make_default("mine")
    outcomes = side_by_side(*[save("mine", 50 + number) for number in range(6)])
    assert [type(each).__name__ for each in outcomes] == ["CompactionProfile"] * 6
    rows = CompactionProfile.objects.filter(name="mine").order_by("version")
    assert [row.version for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.is_current for row in rows] == [False] * 6 + [True]
    # What a version takes over from the one before it is not lost on the way.
    assert {row.description for row in rows} == {"Kept."}
    assert find_profile() == rows[6]


def test_of_two_who_opened_the_same_version_one_is_refused():
    save_profile(name="mine", parameters={})
    outcomes = side_by_side(save("mine", 50, opened=1), save("mine", 60, opened=1))
    refused = [each for each in outcomes if isinstance(each, StaleProfileError)]
    assert [str(each) for each in refused] == ["Version 2 was saved meanwhile: look at it first."]
    assert find_profile("mine").version == 2


def test_of_two_who_make_the_same_new_profile_one_is_refused():
    outcomes = side_by_side(save("new", 50, opened=0), save("new", 60, opened=0))
    assert sorted(type(each).__name__ for each in outcomes) == [
        "CompactionProfile",
        "StaleProfileError",
    ]


def test_several_new_defaults_leave_one():
    for name in ("one", "two", "three"):
        save_profile(name=name, parameters={})
    outcomes = side_by_side(
        lambda: make_default("one"),
        lambda: make_default("two"),
        save("three", 50, make_default=True),
        save("bisect", 50),
    )
    assert [type(each).__name__ for each in outcomes] == ["CompactionProfile"] * 4
    assert CompactionProfile.objects.filter(is_default=True).count() == 1
    assert find_profile().is_current

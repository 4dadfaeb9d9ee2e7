"""Which sessions a profile leaves alone: kinds and versions of clients, whatever JSON they are."""

from __future__ import annotations

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.policy.gates import gate_of, version_of
from compaction.engine.profile import PRESETS, ProfileError, build

ABRIDGED = PRESETS["abridged"]


@pytest.mark.parametrize(
    ("bot_type", "is_left_out"),
    [
        (1, True),
        ("1", True),
        (1.0, True),
        (2, True),
        ("CODE_REVIEW_BOT", True),
        (" CODE_REVIEW_EVAL_BOT ", True),
        (3, False),
        ("code review", False),
        ("CODE_REVIEW", False),
        ("", False),
        (None, False),
        (True, False),
        (1.5, False),
        ([1], False),
        ({"CODE_REVIEW_BOT": 1}, False),
        (10**60, False),
        (float("nan"), False),
        (float("inf"), False),
    ],
)
def test_a_kind_of_client_is_left_out_whatever_json_it_is(bot_type, is_left_out):
    assert bool(gate_of(ABRIDGED, {"bot_type": bot_type})) is is_left_out


@pytest.mark.parametrize("metadata", [{}, None, [], "1", {"client_version": "0.0.1"}])
def test_a_session_that_says_nothing_of_it_is_compacted(metadata):
    assert gate_of(ABRIDGED, metadata) == ""


def test_the_sentence_names_what_was_found_and_the_parameter():
    said = gate_of(ABRIDGED, {"bot_type": 2})
    assert "'2'" in said
    assert "excluded_bot_types" in said


def test_other_presets_leave_nobody_out():
    assert gate_of(Profile(), {"bot_type": 1, "client_version": "0"}) == ""


@pytest.mark.parametrize(
    ("least", "version", "is_left_out"),
    [
        ("3.10", "3.9", True),
        ("3.9", "3.10", False),
        ("3.10", "3.10", False),
        ("3", "3.0.0", False),
        ("3.0.1", "3", True),
        ("3", 2, True),
        ("3", 3, False),
        ("3.1", "v2.99.99-beta", True),
        ("3.1", "v3.1+build.7", False),
        # What cannot be read leaves nobody out.
        ("3.1", "latest", False),
        ("3.1", None, False),
        ("3.1", "", False),
        ("3.1", "2..1", False),
        ("3.1", "٢.٠", False),
        ("3.1", "9" * 50, False),
        ("3.1", True, False),
        ("", "0.1", False),
    ],
)
def test_versions_are_compared_number_by_number(least, version, is_left_out):
    profile = build(Profile(), {"min_client_version": least})
    assert bool(gate_of(profile, {"client_version": version})) is is_left_out


def test_a_version_is_its_numbers():
    assert version_of("v3.10.2-rc1") == (3, 10, 2)
    assert version_of("3,10") == ()


@pytest.mark.parametrize("least", ["latest", "v", "3..1", "three"])
def test_a_least_version_that_cannot_be_read_is_refused(least):
    with pytest.raises(ProfileError) as refused:
        build(Profile(), {"min_client_version": least})
    assert "numbers with dots between" in refused.value.errors["min_client_version"]

"""Parameters: defaults, validation, and the environment."""

from __future__ import annotations

import pytest

from compaction.engine.parameters import Profile
from compaction.engine.profile import (
    ENVIRONMENT,
    PRESETS,
    ProfileError,
    build,
    from_environment,
    parameter_types,
)


def errors_of(**values) -> dict[str, str]:
    with pytest.raises(ProfileError) as wrong:
        build(Profile(), values)
    return wrong.value.errors


def test_the_preset_has_the_defaults_of_the_document():
    preset = PRESETS["bisect"]
    assert preset.enabled is True
    assert preset.message_limit == 40
    assert preset.max_context_tokens == 6000
    assert preset.keep_last_n == 6
    assert preset.target_summary_tokens == 700
    assert preset.merge_target == 700
    assert preset.temperature == 0.2
    assert preset.cooldown_seconds == 60
    assert preset.bisect_enabled is True
    assert preset.bisect_max_depth == 6
    assert preset.bisect_min_messages == 4
    assert preset.retry_on_context_overflow is True
    assert preset.summary_limit == 2


def test_planned_splits_are_off_in_the_preset():
    assert PRESETS["bisect"].planned_split is False


def test_the_merge_target_follows_the_target():
    # A merge target that stayed as it was would be larger than the target.
    assert build(Profile(), {"target_summary_tokens": 300}).merge_target == 300


def test_values_are_put_over_the_base():
    assert build(Profile(), {"keep_last_n": 2}).keep_last_n == 2


def test_an_unknown_parameter_is_refused_with_the_known_ones():
    assert "message_limit" in errors_of(mesage_limit=3)["mesage_limit"]


def test_every_wrong_value_is_named():
    assert set(errors_of(message_limit="42px", enabled="false", cut="middle")) == {
        "message_limit",
        "enabled",
        "cut",
    }


@pytest.mark.parametrize("value", ["42px", "42", 12.5, None, True, [1]])
def test_no_junk_counts_as_a_whole_number(value):
    assert errors_of(message_limit=value)["message_limit"] == "Must be a whole number."


@pytest.mark.parametrize("value", ["false", 1, 0, None])
def test_no_junk_counts_as_true_or_false(value):
    assert errors_of(bisect_enabled=value)["bisect_enabled"] == "Must be true or false."


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 2.1])
def test_a_temperature_has_bounds(value):
    assert "temperature" in errors_of(temperature=value)


def test_no_temperature_is_a_temperature():
    assert build(Profile(), {"temperature": None}).temperature is None


def test_fewer_than_two_messages_are_never_halved():
    assert "2" in errors_of(bisect_min_messages=1)["bisect_min_messages"]


def test_a_choice_names_what_can_be_chosen():
    assert "extractive" in errors_of(summariser="magic")["summariser"]


def test_keeping_as_many_as_trigger_is_refused():
    assert "message_limit (6)" in errors_of(message_limit=6, keep_last_n=6)["keep_last_n"]


def test_keeping_many_is_fine_without_the_count():
    assert build(Profile(), {"message_limit": 0, "keep_last_n": 60}).keep_last_n == 60


def test_variables_of_the_document_set_parameters():
    values = from_environment(
        {
            "SUMMARY_MESSAGE_LIMIT": "12",
            "SUMMARY_TEMPERATURE": "0.7",
            "SUMMARY_BISECT_ENABLED": "no",
            "DYNAMIC_SUMMARY_ENABLED": "FALSE",
            "SOMETHING_ELSE": "1",
        }
    )
    assert values == {
        "message_limit": 12,
        "temperature": 0.7,
        "bisect_enabled": False,
        "enabled": False,
    }


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "True"])
def test_words_for_true(word):
    assert from_environment({"SUMMARY_BISECT_ENABLED": word}) == {"bisect_enabled": True}


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "OFF"])
def test_words_for_false(word):
    assert from_environment({"SUMMARY_BISECT_ENABLED": word}) == {"bisect_enabled": False}


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SUMMARY_MESSAGE_LIMIT", "42px"),
        ("SUMMARY_MESSAGE_LIMIT", "none"),
        ("SUMMARY_BISECT_ENABLED", "maybe"),
        ("SUMMARY_TEMPERATURE", "warm"),
    ],
)
def test_junk_in_a_variable_is_refused(variable, text):
    with pytest.raises(ProfileError) as wrong:
        from_environment({variable: text})
    assert variable in wrong.value.errors


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_empty_variable_sets_nothing(text):
    names = ("SUMMARY_MESSAGE_LIMIT", "SUMMARY_BISECT_ENABLED", "SUMMARY_TEMPERATURE")
    assert from_environment(dict.fromkeys(names, text)) == {}


def test_a_temperature_may_be_none():
    assert from_environment({"SUMMARY_TEMPERATURE": "none"}) == {"temperature": None}


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        # 0 or less switches a rule off; halving needs two messages at least.
        ("SUMMARY_MESSAGE_LIMIT", "-1", "message_limit", 0),
        ("SUMMARY_MAX_CONTEXT_TOKENS", "-5", "max_context_tokens", 0),
        ("SUMMARY_KEEP_LAST_N", "-3", "keep_last_n", 0),
        ("SUMMARY_BISECT_MIN_MESSAGES", "1", "bisect_min_messages", 2),
    ],
)
def test_a_variable_below_the_least_value_counts_as_the_least(variable, text, name, value):
    assert build(Profile(), from_environment({variable: text})).as_dict()[name] == value


def test_every_variable_sets_a_parameter_that_exists():
    assert set(ENVIRONMENT.values()) <= set(parameter_types())


@pytest.mark.parametrize("text", ["nul \x00 here", "half \ud83d here"])
def test_a_text_that_no_database_takes_is_refused(text):
    with pytest.raises(ProfileError) as refusal:
        build(PRESETS["abridged"], {"prompt": text})
    assert "NUL or a broken character" in refusal.value.errors["prompt"]

"""Profiles as rows: versions, the default, validation, the environment."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from compaction.branches.leases import ensure_state
from compaction.branches.planning import decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.errors import CompactionError
from compaction.models import CompactionProfile
from compaction.profiles import find_profile, install_presets, make_default, save_profile
from compaction.runs.scheduling import assign_profile
from tests.compaction.support import compact
from tests.factories import SessionFactory, profile, talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def environment(settings):
    def replace(**variables: str) -> None:
        settings.COMPACTION = settings.COMPACTION | {"ENVIRONMENT": variables}

    return replace


def sentences(error: ValidationError) -> str:
    return " ".join(error.messages)


def test_the_preset_is_installed_and_the_default():
    row = find_profile()
    assert (row.name, row.version, row.parameters) == ("bisect", 1, {})


def test_installing_again_keeps_what_an_operator_changed():
    save_profile(name="bisect", parameters={"keep_last_n": 3})
    install_presets()
    assert find_profile("bisect").parameters == {"keep_last_n": 3}


def test_a_change_makes_a_new_version_and_keeps_the_old():
    save_profile(name="mine", parameters={"keep_last_n": 3})
    save_profile(name="mine", parameters={"keep_last_n": 4})
    rows = CompactionProfile.objects.filter(name="mine").order_by("version")
    assert [(r.version, r.parameters["keep_last_n"], r.is_current) for r in rows] == [
        (1, 3, False),
        (2, 4, True),
    ]


def test_a_run_keeps_the_version_it_used(owner, model_server, queued):
    profile(message_limit=0, max_context_tokens=0, keep_last_n=2)
    run = compact(SessionFactory(owner=owner, wires=talk(6)))
    profile(message_limit=0, max_context_tokens=0, keep_last_n=3)
    run.refresh_from_db()
    assert run.profile.version == 1


def test_the_default_stays_the_default_in_its_next_version():
    profile("mine", keep_last_n=3)
    save_profile(name="mine", parameters={"keep_last_n": 4})
    assert find_profile().parameters == {"keep_last_n": 4}


def test_there_is_one_default():
    save_profile(name="mine", parameters={})
    make_default("mine")
    assert find_profile().name == "mine"
    assert CompactionProfile.objects.filter(is_default=True).count() == 1


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(CompactionError, match="bisect"):
        find_profile("bisekt")


def test_a_session_can_have_its_own(owner):
    save_profile(name="mine", parameters={"keep_last_n": 3})
    session = SessionFactory(owner=owner)
    assign_profile(session, "mine")
    assert snapshot_of(session).profile.keep_last_n == 3
    assign_profile(session, "")
    assert snapshot_of(session).profile_row.name == "bisect"


def test_a_session_cannot_get_one_that_does_not_exist(owner):
    with pytest.raises(CompactionError):
        assign_profile(SessionFactory(owner=owner), "bisekt")


def test_a_session_whose_profile_is_gone_uses_the_default(owner, caplog):
    session = SessionFactory(owner=owner)
    state = ensure_state(session.branch)
    type(state).objects.update(profile="gone")
    assert snapshot_of(session).profile_row.name == "bisect"
    assert "gone" in caplog.text


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"message_limit": "42px"}, "message_limit: Must be a whole number."),
        ({"enabled": "false"}, "enabled: Must be true or false."),
        ({"keep_last": 3}, "keep_last: There is no such parameter."),
        ({"message_limit": 3, "keep_last_n": 3}, "keep_last_n: Must be below message_limit (3)"),
        ({"summary_model": "gpt-9"}, "summary_model: No model is called 'gpt-9' here."),
        (["message_limit"], "Must be a JSON object"),
    ],
)
def test_junk_is_refused_with_a_sentence(parameters, sentence):
    with pytest.raises(ValidationError) as wrong:
        CompactionProfile(name="other", parameters=parameters).full_clean()
    assert sentence in sentences(wrong.value)


def test_nothing_is_stored_of_a_refused_change():
    save_profile(name="mine", parameters={"keep_last_n": 3})
    with pytest.raises(ValidationError):
        save_profile(name="mine", parameters={"keep_last_n": -1})
    assert find_profile("mine").version == 1


@pytest.mark.parametrize("changes", [{"base": "quadsect"}, {"name": "not a name"}])
def test_a_wrong_name_or_base_is_refused(changes):
    with pytest.raises(ValidationError):
        save_profile(**({"name": "mine", "parameters": {}} | changes))


def test_variables_override_the_preset(environment):
    environment(SUMMARY_MESSAGE_LIMIT="12", SUMMARY_TEMPERATURE="0.5")
    resolved = find_profile("bisect").resolved()
    assert (resolved.message_limit, resolved.temperature) == (12, 0.5)


def test_stored_parameters_win_over_variables(environment):
    environment(SUMMARY_MESSAGE_LIMIT="12")
    assert (
        save_profile(name="mine", parameters={"message_limit": 30}).resolved().message_limit == 30
    )


def test_a_stored_parameter_can_mend_what_a_variable_alone_would_break(environment):
    # The preset keeps six, so five alone would be refused.
    environment(SUMMARY_MESSAGE_LIMIT="5")
    assert save_profile(name="mine", parameters={"keep_last_n": 2}).resolved().message_limit == 5


def test_a_variable_set_to_one_does_not_let_a_merge_halve_itself(environment):
    environment(SUMMARY_BISECT_MIN_MESSAGES="1")
    assert find_profile("bisect").resolved().bisect_min_messages == 2


def test_the_master_switch_of_the_document_switches_everything_off(owner, environment, queued):
    environment(DYNAMIC_SUMMARY_ENABLED="false", SUMMARY_MESSAGE_LIMIT="10")
    snapshot = snapshot_of(SessionFactory(owner=owner, wires=talk(20)))
    assert decision_of(snapshot) is None

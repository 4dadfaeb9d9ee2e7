"""The preset `balanced`: what it does, and which installations use it."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection

from chatapp.models import Session
from compaction import checks
from compaction.branches.planning import cut_of, decision_of
from compaction.branches.snapshot import snapshot_of
from compaction.engine.profile import DEFAULT_PRESET, PRESETS, from_environment
from compaction.models import CompactionProfile, CompactionRun
from compaction.profiles import find_profile, install_presets
from compaction.runs.scheduling import check_branch
from compaction.runs.worker import execute_run
from tests.compaction.support import say, state
from tests.factories import SessionFactory, store, talk, user

pytestmark = pytest.mark.django_db
BALANCED = PRESETS["balanced"]
migration = import_module("compaction.migrations.0012_keep_the_default_of_old_installations")


def use_balanced() -> CompactionProfile:
    CompactionProfile.objects.filter(is_default=True).update(is_default=False)
    CompactionProfile.objects.filter(name="balanced", is_current=True).update(is_default=True)
    return find_profile()


@pytest.fixture
def session(owner, use_models, model_server, queued) -> Session:
    use_models(model_server.models(CONTEXT_WINDOW=8000, MAX_OUTPUT=1000))
    use_balanced()
    return SessionFactory(owner=owner)


# --- what it does --------------------------------------------------------------------------------


def test_it_says_what_the_design_says():
    by_count = (BALANCED.message_limit, BALANCED.max_context_tokens)
    assert by_count == (0, 0)
    assert (BALANCED.prepare_ratio, BALANCED.window_trigger) == (0.7, True)
    kept = (BALANCED.cut, BALANCED.keep_recent_tokens, BALANCED.keep_recent_share)
    assert kept == ("checkpoint", 20_000, 0.25)
    assert (BALANCED.rendering, BALANCED.precheck_margin) == ("system", 1.2)
    ladder = (
        BALANCED.max_overflow_compaction_attempts,
        BALANCED.truncate_tool_results,
        BALANCED.halve_history,
    )
    assert ladder == (3, True, True)
    assert BALANCED.bisect_enabled is True


def test_a_small_window_keeps_a_quarter_of_itself(session):
    store(session, talk(60))
    cut = cut_of(snapshot_of(session))
    kept = sum(item.tokens for item in cut.keep)
    last = cut.keep[0].tokens
    # The message that reaches the number stays whole.
    assert 2000 <= kept < 2000 + last


def test_it_summarises_in_the_background_before_anybody_waits(session, model_server):
    store(session, talk(50))
    assert snapshot_of(session).request_tokens < 0.7 * 8000
    while check_branch(session) is None:
        say(session, "lorem " * 60)
        assert model_server.of("summary") == []
    run = CompactionRun.objects.get()
    assert (run.reason, run.mode) == ("ahead", "background")
    assert execute_run(run.pk).status == "succeeded"
    assert decision_of(snapshot_of(session)) is None
    assert state(session).cursor > 0


def test_a_full_window_is_compacted_before_the_request(session, model_server):
    store(session, talk(55))
    say(session, "lorem " * 2000)
    run = CompactionRun.objects.filter(status="succeeded").get()
    assert (run.reason, run.mode) == ("window", "inline")
    request = model_server.of("chat")[-1].messages
    assert request[0]["role"] == "system"
    assert request[-1]["content"] == "lorem " * 2000


def test_a_request_that_would_be_too_large_with_its_margin_is_made_smaller_first(
    session, model_server
):
    # 1.2 times its count leaves no room for the answer; the count alone does.
    store(session, [*talk(66), user("hello")])
    used = snapshot_of(session).request_tokens
    assert used <= 7000 < 1.2 * used
    say(session, "and now?")
    assert CompactionRun.objects.filter(status="succeeded").get().reason == "precheck"


def test_the_usual_variables_count_for_it(settings):
    assert from_environment({"DYNAMIC_SUMMARY_ENABLED": "false"}, "balanced") == {"enabled": False}
    assert from_environment({"SUMMARY_MODEL": "small"}, "checkpoint") == {"summary_model": "small"}


# --- which installations use it ------------------------------------------------------------------


def installed(*, sessions: bool, owner, default: str | None = "bisect") -> str | None:
    """Return the default of an installation from before, once it was migrated."""
    CompactionProfile.objects.exclude(name__in=("bisect", "sliding_window")).delete()
    CompactionProfile.objects.update(is_default=False)
    CompactionProfile.objects.filter(name=default).update(is_default=True)
    if sessions:
        SessionFactory(owner=owner)
    migration.keep_the_default(apps, SimpleNamespace(connection=connection))
    install_presets()
    return find_profile().name


@pytest.fixture
def no_name(settings) -> None:
    """Nobody named a profile in the environment: the default of the setting counts."""
    settings.COMPACTION = settings.COMPACTION | {"DEFAULT_PROFILE": DEFAULT_PRESET}
    assert DEFAULT_PRESET == "balanced"


def test_a_new_installation_uses_it(no_name, owner):
    CompactionProfile.objects.all().delete()
    install_presets()
    assert find_profile().name == "balanced"
    assert find_profile().is_default


def test_an_installation_without_sessions_is_new(no_name, owner):
    assert installed(sessions=False, owner=owner) == "balanced"


@pytest.mark.parametrize("default", ["bisect", None])
def test_an_installation_with_sessions_keeps_bisect(no_name, owner, default):
    assert installed(sessions=True, owner=owner, default=default) == "bisect"
    assert find_profile().is_default


def test_what_was_marked_on_purpose_stays(no_name, owner):
    assert installed(sessions=False, owner=owner, default="sliding_window") == "sliding_window"


def test_a_name_in_the_environment_goes_on_counting(settings, owner):
    settings.COMPACTION = settings.COMPACTION | {"DEFAULT_PROFILE": "sliding_window"}
    assert installed(sessions=True, owner=owner, default=None) == "sliding_window"


def test_checks_say_nothing_of_a_name_that_nobody_gave(no_name):
    CompactionProfile.objects.filter(name="balanced").delete()
    assert checks.check_default_profile(databases=["default"]) == []

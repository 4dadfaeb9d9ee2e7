"""CHATAPP as settings, the models it names, and the secret of a machine that was given none."""

from __future__ import annotations

import stat

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import ValidationError

from chatapp.conf import ChatappSettings, chatapp_settings, local_secret_key
from chatapp.context.backend import FullHistoryBackend, context_backend
from chatapp.llm.registry import UnknownModelError, all_models, get_model


def test_every_key_has_a_default(settings):
    settings.CHATAPP = {}
    assert chatapp_settings.turn_seconds == 300
    assert chatapp_settings.context["BACKEND"] == "chatapp.context.backend.FullHistoryBackend"


def test_a_key_that_nothing_reads_is_refused_with_those_that_exist(settings):
    settings.CHATAPP = {"TURN_SECOND": 1}
    with pytest.raises(ImproperlyConfigured, match=r"TURN_SECOND\b.*TURN_SECONDS"):
        _ = chatapp_settings.turn_seconds


def test_a_change_in_a_test_is_read(settings):
    settings.CHATAPP = settings.CHATAPP | {"TURN_SECONDS": 7}
    assert chatapp_settings.turn_seconds == 7


def test_settings_cannot_be_changed_by_accident():
    frozen = ChatappSettings.from_mapping("CHATAPP", {})
    with pytest.raises(ValidationError, match="frozen"):
        frozen.turn_seconds = 1  # type: ignore[misc]
    assert frozen.turn_seconds == 300


def test_a_models_key_is_not_shown_where_it_is_printed(use_models):
    use_models({"default": {"BACKEND": "b", "NAME": "n", "CONTEXT_WINDOW": 1, "API_KEY": "sk-1"}})
    assert "sk-1" not in repr(get_model("default"))


def test_an_unknown_alias_is_answered_with_those_that_exist():
    with pytest.raises(UnknownModelError, match=r"default, embedded"):
        get_model("gone")


def test_without_a_key_the_default_is_the_embedded_model():
    assert all_models()["default"].is_embedded


def test_the_context_backend_is_made_anew_when_the_setting_changes(settings):
    settings.CHATAPP = settings.CHATAPP | {
        "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {"a": 1}}
    }
    assert isinstance(context_backend, FullHistoryBackend)
    assert context_backend.options == {"a": 1}


def test_a_machine_keeps_the_secret_it_made(tmp_path):
    first = local_secret_key(tmp_path)
    assert len(first) >= 50
    assert local_secret_key(tmp_path) == first


def test_nobody_else_on_the_machine_can_read_the_secret(tmp_path):
    local_secret_key(tmp_path)
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_no_draft_of_the_secret_is_left_behind(tmp_path):
    local_secret_key(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]

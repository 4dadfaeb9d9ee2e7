"""One test for each system check: what it says, and that the product's settings pass."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks

from chatapp import checks
from chatapp.context.backend import FullHistoryBackend, context_backend
from chatapp.llm.openai_client import OpenAIModel
from chatapp.llm.registry import get_model


def ids(*functions) -> list[str]:
    """Return the ids that the checks report; all of them must be able to run."""
    every = functions or (
        checks.check_models,
        checks.check_token_counter,
        checks.check_context,
        checks.check_turn_rate,
        checks.check_limits,
    )
    return [message.id for check in every for message in check()]


@pytest.fixture
def chatapp(settings):
    """Change keys of CHATAPP for one test."""

    def change(**changes) -> None:
        settings.CHATAPP = settings.CHATAPP | changes

    return change


def entry(**changes) -> dict:
    return {
        "BACKEND": "chatapp.llm.embedded.EmbeddedModel",
        "NAME": "m",
        "CONTEXT_WINDOW": 8192,
        "MAX_OUTPUT": 1024,
    } | changes


def test_the_products_own_settings_have_no_errors():
    assert [message for message in run_checks() if message.level >= 30] == []


def test_e001_a_generated_secret_is_no_secret_for_users(settings):
    settings.SECRET_KEY_IS_GENERATED = True
    assert ids(checks.check_secret) == ["chatapp.E001"]
    settings.SECRET_KEY_IS_GENERATED = False
    assert ids(checks.check_secret) == []


@pytest.mark.parametrize(
    "models",
    [
        {"default": entry(COLOUR="blue")},
        {"default": {"NAME": "m"}},
        {"default": entry(PRICES={"TIP": 1})},
        {"default": "gpt"},
    ],
)
def test_e002_models_that_cannot_be_read(chatapp, models):
    chatapp(MODELS=models)
    assert ids(checks.check_models, checks.check_token_counter) == ["chatapp.E002"]


def test_e002_a_key_that_nothing_reads(chatapp):
    chatapp(COLOUR="blue")
    assert ids(checks.check_models) == ["chatapp.E002"]


def test_e003_no_default_model(chatapp):
    chatapp(MODELS={"other": entry()})
    assert ids() == ["chatapp.E003"]


def test_e004_a_backend_that_cannot_be_imported(chatapp):
    chatapp(MODELS={"default": entry(BACKEND="chatapp.nowhere.Model")})
    assert ids(checks.check_models) == ["chatapp.E004"]


def test_e005_a_token_counter_that_does_not_exist(chatapp):
    chatapp(TOKEN_COUNTER="guess")
    assert ids(checks.check_token_counter) == ["chatapp.E005"]


@pytest.mark.parametrize(
    "context",
    [{"BACKEND": "chatapp.nowhere.Backend"}, {}, {"BACKEND": "chatapp.context.backend.silent"}],
)
def test_e006_a_context_backend_that_cannot_be_used(chatapp, context):
    chatapp(CONTEXT=context)
    assert ids(checks.check_context) == ["chatapp.E006"]


@pytest.mark.parametrize("rate", ["many", "10", "10/", "x/min", "10/fortnight"])
def test_e007_a_rate_that_cannot_be_read(settings, rate):
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": {"turns": rate}}
    assert ids(checks.check_turn_rate) == ["chatapp.E007"]


@pytest.mark.parametrize("rate", [None, "30/min", "1/s", "500/day"])
def test_a_rate_may_be_missing_or_a_number_and_a_period(settings, rate):
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": {"turns": rate}}
    assert ids(checks.check_turn_rate) == []


@pytest.mark.parametrize(
    "name",
    [
        "TURN_SECONDS",
        "MODEL_TIMEOUT_SECONDS",
        "REQUEST_THREADS",
        "STREAM_THREADS",
        "HEARTBEAT_SECONDS",
        "MAX_MESSAGE_CHARS",
        "MAX_MESSAGES_PER_REQUEST",
        "MAX_BODY_BYTES",
        "MAX_IMPORT_BYTES",
    ],
)
def test_e008_a_limit_with_which_nothing_would_work(chatapp, name):
    chatapp(**{name: 0})
    (error,) = checks.check_limits()
    assert (error.id, error.msg) == ("chatapp.E008", f"{name} is 0; it must be at least 1.")


@pytest.mark.parametrize("name", ["CONTEXT_WINDOW", "MAX_OUTPUT"])
def test_e008_a_model_without_room(chatapp, name):
    chatapp(MODELS={"default": entry(**{name: 0})})
    assert ids(checks.check_limits) == ["chatapp.E008"]


@pytest.mark.parametrize("value", [None, "", "8192", True, [8192]])
def test_e008_a_window_that_is_no_number(chatapp, value):
    chatapp(MODELS={"default": entry(CONTEXT_WINDOW=value)})
    (error,) = checks.check_limits()
    name = "CONTEXT_WINDOW of model 'default'"
    said = f"{name} is {value!r}; it must be a whole number of at least 1."
    assert (error.id, error.msg) == ("chatapp.E008", said)
    assert checks.check_models() == []


def test_w001_an_answer_may_not_take_more_than_half_of_the_window(chatapp):
    chatapp(MODELS={"default": entry(CONTEXT_WINDOW=2000, MAX_OUTPUT=1500)})
    assert ids(checks.check_models) == ["chatapp.W001"]


def test_w002_backends_by_their_older_paths_work_and_are_pointed_out(chatapp):
    chatapp(
        MODELS={"default": entry(BACKEND="chatapp.llm.client.OpenAIModel"), "other": entry()},
        CONTEXT={"BACKEND": "chatapp.context.FullHistoryBackend"},
    )
    assert isinstance(get_model("default").connect(), OpenAIModel)
    assert type(context_backend.check.__self__) is FullHistoryBackend
    assert ids(checks.check_models, checks.check_context) == []
    assert [(found.id, found.msg, found.hint) for found in checks.check_moved_backends()] == [
        (
            "chatapp.W002",
            "CHATAPP['MODELS']['default']['BACKEND'] is 'chatapp.llm.client.OpenAIModel', which "
            "the next version will not find.",
            "Write chatapp.llm.openai_client.OpenAIModel.",
        ),
        (
            "chatapp.W002",
            "CHATAPP['CONTEXT']['BACKEND'] is 'chatapp.context.FullHistoryBackend', which the "
            "next version will not find.",
            "Write chatapp.context.backend.FullHistoryBackend.",
        ),
    ]


@pytest.mark.parametrize("mode", ["auto", "tiktoken:no_such_encoding"])
def test_i001_says_that_tokens_are_estimated_although_exact_counts_were_wanted(chatapp, mode):
    chatapp(MODELS={"default": entry(ENCODING="no_such_encoding")}, TOKEN_COUNTER=mode)
    assert ids(checks.check_exact_counts) == ["chatapp.I001"]


@pytest.mark.parametrize("mode", ["estimate", "chars4"])
def test_i001_says_how_tokens_are_counted_where_an_estimate_was_asked_for(chatapp, mode):
    chatapp(TOKEN_COUNTER=mode)
    assert ids(checks.check_token_counter) == []
    assert ids(checks.check_exact_counts) == ["chatapp.I001"]


@pytest.mark.parametrize(
    ("wordings", "found"), [((), 0), (("passt nicht mehr",), 0), (("a", 7), 2)]
)
def test_wordings_that_stand_in_every_error_are_refused(settings, wordings, found):
    settings.CHATAPP = settings.CHATAPP | {"OVERFLOW_WORDINGS": wordings}
    from chatapp.checks import check_wordings

    assert [message.id for message in check_wordings()] == ["chatapp.E009"] * found

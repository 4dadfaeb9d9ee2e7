"""System checks of the conversation app: what is missing, what it means, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from rest_framework.throttling import SimpleRateThrottle

from chatapp.answer_files import folder_fault
from chatapp.conf import (
    MOVED_BACKENDS,
    SETTINGS_TAG,
    ChatappSettings,
    backend_path,
    chatapp_settings,
)
from chatapp.health import counting_parts, readiness_checks, unknown_part
from chatapp.llm.registry import ModelConfig, all_models
from chatapp.llm.tokens import describe_counter
from chatapp.part_store import part_storage


@register(SETTINGS_TAG, Tags.security, deploy=True)
def check_secret(**kwargs: Any) -> list[CheckMessage]:
    """A server that users reach needs a secret key of its own, the same on every machine."""
    if not getattr(settings, "SECRET_KEY_IS_GENERATED", False):
        return []
    return [
        Error(
            "SECRET_KEY is not set; a key was made for this machine alone.",
            hint="Set SECRET_KEY, or SECRET_KEY_FILE to a file that holds it. All machines of one "
            "installation need the same key: sessions and queued tasks are signed with it.",
            id="chatapp.E001",
        )
    ]


@register(SETTINGS_TAG, Tags.compatibility)
def check_models(**kwargs: Any) -> list[CheckMessage]:
    """CHATAPP must be readable and name models that can be made."""
    models = _models()
    if isinstance(models, Exception):
        return [
            Error(
                f"CHATAPP cannot be read: {models}",
                hint="docs/models.md lists the keys of an entry.",
                id="chatapp.E002",
            )
        ]
    found: list[CheckMessage] = []
    if "default" not in models:
        found.append(
            Error(
                "CHATAPP['MODELS'] has no alias 'default'.",
                hint="Sessions that name no model use it. Add it.",
                id="chatapp.E003",
            )
        )
    for model in models.values():
        found += _check_model(model)
    return found


def _models() -> Mapping[str, ModelConfig] | Exception:
    """Return the configured models, or why they cannot be read."""
    try:
        return all_models()
    except (ImproperlyConfigured, TypeError, ValueError, AttributeError) as error:
        return error


def _check_model(model: ModelConfig) -> Iterator[CheckMessage]:
    try:
        import_string(model.backend)
    except ImportError as error:
        yield Error(
            f"The backend of model {model.alias!r} cannot be imported: {error}",
            hint="BACKEND is a dotted path, such as chatapp.llm.openai_client.OpenAIModel.",
            id="chatapp.E004",
        )
    window, most = model.context_window, model.max_output
    are_right = not (_number_wanted(window, 1) or _number_wanted(most, 1))
    if are_right and most * 2 > window:
        yield Warning(
            f"Model {model.alias!r} may answer with {model.max_output} tokens, more than half of "
            f"its window of {model.context_window}: little is left for the conversation.",
            hint="Lower OPENAI_MAX_OUTPUT or correct OPENAI_CONTEXT_WINDOW.",
            id="chatapp.W001",
        )


@register(SETTINGS_TAG, Tags.compatibility)
def check_moved_backends(**kwargs: Any) -> list[CheckMessage]:
    """A BACKEND with an older dotted path works for one version and says so."""
    if isinstance(_models(), Exception):
        return []  # check_models says what is wrong
    entries = {f"['MODELS'][{alias!r}]": entry for alias, entry in chatapp_settings.models.items()}
    entries["['CONTEXT']"] = chatapp_settings.context
    paths = {place: entry.get("BACKEND", "") for place, entry in entries.items()}
    return [
        Warning(
            f"CHATAPP{place}['BACKEND'] is {path!r}, which the next version will not find.",
            hint=f"Write {backend_path(path)}.",
            id="chatapp.W002",
        )
        for place, path in paths.items()
        if path in MOVED_BACKENDS
    ]


@register(SETTINGS_TAG, Tags.compatibility)
def check_token_counter(**kwargs: Any) -> list[CheckMessage]:
    """TOKEN_COUNTER must be one of the ways there are. No encoding is loaded for this."""
    wished: str = chatapp_settings.token_counter
    if wished in ("auto", "estimate", "chars4") or wished.startswith("tiktoken:"):
        return []
    return [
        Error(
            f"TOKEN_COUNTER cannot be used: {wished!r} is no way to count tokens.",
            hint="It is auto, estimate, chars4, or tiktoken:ENCODING.",
            id="chatapp.E005",
        )
    ]


@register(SETTINGS_TAG, Tags.compatibility, deploy=True)
def check_exact_counts(**kwargs: Any) -> list[CheckMessage]:
    """Say how tokens are counted where that is not exact.

    Only with `check --deploy`: it loads an encoding, which other commands should not wait for, and
    a laptop without one is nothing to be told of with every command.
    """
    models = _models()
    if isinstance(models, Exception) or "default" not in models or check_token_counter():
        return []  # other checks say what is wrong
    counter = models["default"].counter
    return [] if counter.exact else [Info(describe_counter(counter), id="chatapp.I001")]


LEAST_WORDING_CHARS = 6


@register(SETTINGS_TAG, Tags.compatibility)
def check_limits(**kwargs: Any) -> list[CheckMessage]:
    """Numbers with which nothing could ever work are refused."""
    models = _models()
    if isinstance(models, Exception):
        return []  # check_models says what is wrong
    numbers: dict[str, tuple[Any, float, Any]] = {
        declared.name.upper(): (
            getattr(chatapp_settings, declared.name),
            declared.minimum,
            int | float,
        )
        for declared in ChatappSettings.declarations()
        if declared.minimum is not None
    }
    for model in models.values():
        numbers[f"CONTEXT_WINDOW of model {model.alias!r}"] = (model.context_window, 1, int)
        numbers[f"MAX_OUTPUT of model {model.alias!r}"] = (model.max_output, 1, int)
        frame = f"MESSAGE_FRAME_TOKENS of model {model.alias!r}"
        numbers[frame] = (model.message_frame_tokens, 0, int)
    return [
        Error(
            f"{name} is {number!r}; it must be {wanted}.",
            hint="Correct it, or leave it out to get the default.",
            id="chatapp.E008",
        )
        for name, (number, least, kinds) in numbers.items()
        if (wanted := _number_wanted(number, least, kinds))
    ]


def _number_wanted(number: Any, least: float, kinds: Any = int) -> str:
    """Return what should stand in the place of a limit; empty where it is right."""
    if isinstance(number, bool) or not isinstance(number, kinds):
        return f"a whole number of at least {least}"
    return "" if number >= least else f"at least {least}"


@register(SETTINGS_TAG, Tags.files)
def check_part_storage(**kwargs: Any) -> list[CheckMessage]:
    """The storage of parts must be one that can be made. It is not asked for anything."""
    try:
        part_storage()
    except Exception as error:  # whatever its library raises
        return [
            Error(
                f"PART_STORAGE cannot be used: {error}",
                hint="It is the dotted path of a Django storage, PART_STORAGE_OPTIONS a JSON "
                "object of what it is made with. docs/operations.md#the-store-of-parts.",
                id="chatapp.E012",
            )
        ]
    return []


@register(SETTINGS_TAG, Tags.files)
def check_answer_folder(**kwargs: Any) -> list[CheckMessage]:
    """ANSWER_DIR must be a folder that this process can write to, and nobody else can read."""
    fault = folder_fault()
    return (
        []
        if not fault
        else [
            Warning(
                f"ANSWER_DIR {fault}",
                hint="An answer that the database does not take waits there. "
                "docs/operations.md#answers-that-cannot-be-stored.",
                id="chatapp.W003",
            )
        ]
    )


@register(SETTINGS_TAG, Tags.compatibility)
def check_wordings(**kwargs: Any) -> list[CheckMessage]:
    """OVERFLOW_WORDINGS must be texts that do not stand in every error."""
    return [
        Error(
            f"OVERFLOW_WORDINGS has {wording!r}, which is no text of {LEAST_WORDING_CHARS} "
            "characters or more: other errors would be taken for requests that are too large.",
            hint="Write a piece of the error's text that stands in no other error.",
            id="chatapp.E009",
        )
        for wording in chatapp_settings.overflow_wordings
        if not isinstance(wording, str) or len(wording.strip()) < LEAST_WORDING_CHARS
    ]


@register(SETTINGS_TAG, Tags.compatibility)
def check_formats(**kwargs: Any) -> list[CheckMessage]:
    """FORMATS must name formats that can be loaded."""
    if isinstance(_models(), Exception) or not chatapp_settings.formats:
        return []  # nothing is added; or check_models says what is wrong
    from chatapp.formats.registry import broken_formats

    return [
        Error(
            sentence,
            hint="CHATAPP['FORMATS'] is {\"name\": dotted path of a chatapp.formats.Format with "
            "this name}.",
            id="chatapp.E011",
        )
        for sentence in broken_formats()
    ]


@register(SETTINGS_TAG, Tags.compatibility)
def check_readiness(**kwargs: Any) -> list[CheckMessage]:
    """READYZ_PARTS must name what can be looked at, or /readyz would never say yes."""
    return [
        Error(
            unknown_part(name),
            hint="Correct the name, or leave READYZ_PARTS out so that all of them count.",
            id="chatapp.E010",
        )
        for name in counting_parts()
        if name not in readiness_checks()
    ]


class _Rate(SimpleRateThrottle):
    """Reads rates as the framework does, without a view."""

    rate = "1/s"


@register(SETTINGS_TAG, Tags.compatibility)
def check_turn_rate(**kwargs: Any) -> list[CheckMessage]:
    """TURN_RATE must be readable, or every turn would fail."""
    framework: Mapping[str, Any] = settings.REST_FRAMEWORK
    rate = framework.get("DEFAULT_THROTTLE_RATES", {}).get("turns")
    try:
        _Rate().parse_rate(rate)
    except (ValueError, KeyError, IndexError):
        return [
            Error(
                f"TURN_RATE cannot be used: {rate!r} is no rate.",
                hint="It is a number and a period (s, min, hour, day), such as 30/min.",
                id="chatapp.E007",
            )
        ]
    return []


@register(SETTINGS_TAG, Tags.compatibility)
def check_context(**kwargs: Any) -> list[CheckMessage]:
    """The context backend must be importable; it adds its own checks."""
    from chatapp.context.backend import context_backend

    try:
        found: list[CheckMessage] = context_backend.check()
    except (ImportError, KeyError, TypeError, ImproperlyConfigured) as error:
        return [
            Error(
                f"CHATAPP['CONTEXT'] cannot be used: {error}",
                hint='It is {"BACKEND": dotted path, "OPTIONS": {…}}.',
                id="chatapp.E006",
            )
        ]
    return found

"""System checks of the conversation app: what is missing, what it means, what to do."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from chatapp.conf import chatapp_settings
from chatapp.context import context_backend
from chatapp.llm.models import all_models, get_model
from chatapp.llm.tokens import describe_counter


@register(Tags.security, deploy=True)
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


@register(Tags.compatibility)
def check_models(**kwargs: Any) -> list[CheckMessage]:
    """CHATAPP must be readable and name models that can be made."""
    try:
        models = all_models()
    except (ImproperlyConfigured, TypeError, ValueError) as error:
        return [
            Error(
                f"CHATAPP cannot be read: {error}",
                hint="README, Settings, lists the keys of CHATAPP and of its MODELS.",
                id="chatapp.E002",
            )
        ]
    found: list[CheckMessage] = []
    if "default" not in models:
        found.append(
            Error(
                "CHATAPP['MODELS'] has no alias 'default'.",
                hint="Sessions that name no model use it. Add it, or leave MODELS out.",
                id="chatapp.E003",
            )
        )
    for alias, model in models.items():
        try:
            import_string(model.backend)
        except ImportError as error:
            found.append(
                Error(
                    f"The backend of model {alias!r} cannot be imported: {error}",
                    hint="BACKEND is a dotted path, such as chatapp.llm.client.OpenAIModel.",
                    id="chatapp.E004",
                )
            )
        if model.max_output * 2 > model.context_window > 0:
            found.append(
                Warning(
                    f"Model {alias!r} may answer with {model.max_output} tokens, more than half of "
                    f"its window of {model.context_window}: little is left for the conversation.",
                    hint="Lower OPENAI_MAX_OUTPUT or correct OPENAI_CONTEXT_WINDOW.",
                    id="chatapp.W001",
                )
            )
    return found


@register(Tags.compatibility)
def check_token_counter(**kwargs: Any) -> list[CheckMessage]:
    """Say how tokens are counted; a wrong TOKEN_COUNTER is an error."""
    try:
        counter = get_model("default").counter
    except (ValueError, LookupError, ImproperlyConfigured) as error:
        return [
            Error(
                f"TOKEN_COUNTER cannot be used: {error}",
                hint="It is auto, estimate, chars4, or tiktoken:ENCODING.",
                id="chatapp.E005",
            )
        ]
    if counter.exact or chatapp_settings.token_counter != "auto":
        return []
    return [Info(describe_counter(counter), id="chatapp.I001")]


@register(Tags.compatibility)
def check_context(**kwargs: Any) -> list[CheckMessage]:
    """The context backend must be importable; it adds its own checks."""
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

"""What a client can choose from: the models that sessions may name.

Addresses of servers and keys are the operator's own and are never told.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import KnownQueryView
from chatapp.llm.adaptations import api_of
from chatapp.llm.learned_limits import with_learned_limits
from chatapp.llm.registry import ModelConfig, all_models
from chatapp.models import Session


class ModelSerializer(serializers.Serializer[Any]):
    """A model: the alias that sessions name, and what it takes."""

    alias = serializers.CharField(help_text="What `model` of a session names.")
    name = serializers.CharField(help_text="The model's name on its server.")
    context_window = serializers.IntegerField(help_text="Tokens, with what the server taught.")
    max_output = serializers.IntegerField(help_text="Tokens of the longest answer.")
    api = serializers.ChoiceField(
        choices=Session.Api.choices,
        allow_null=True,
        help_text="The only API it is offered on; null: the session's.",
    )
    embedded = serializers.BooleanField(help_text="Whether it is the model without a server.")
    exact_tokens = serializers.BooleanField(help_text="Whether its tokens are counted exactly.")


class ModelListSerializer(serializers.Serializer[Any]):
    """All models; there is one page of them."""

    results = ModelSerializer(many=True)


class ModelList(KnownQueryView):
    """The models of this installation."""

    @extend_schema(responses=ModelListSerializer, summary="List the models")
    def get(self, request: Request) -> Response:
        """Return every model by its alias, `default` first."""
        models = sorted(all_models().values(), key=lambda one: (one.alias != "default", one.alias))
        shown = {"results": [_told(with_learned_limits(model)) for model in models]}
        return Response(ModelListSerializer(shown).data)


def _told(model: ModelConfig) -> dict[str, Any]:
    return {
        "alias": model.alias,
        "name": model.name,
        "context_window": model.context_window,
        "max_output": model.max_output,
        "api": api_of(model.adaptations),
        "embedded": model.is_embedded,
        "exact_tokens": model.counter.exact,
    }

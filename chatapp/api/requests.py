"""The request that an answer was given for: messages/{id}/request/."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import KnownQueryView, message_of
from chatapp.api.serializers import LeftOutSerializer
from chatapp.messages.wire import LEFT_OUT
from chatapp.models import Session
from chatapp.turns.made_of import described, place_of
from chatapp.turns.rebuilding import RebuiltRequest, rebuild


class SentProfileSerializer(serializers.Serializer[Any]):
    """The profile in force, and its version then."""

    name = serializers.CharField()
    version = serializers.IntegerField(min_value=0)


class MadeOfSerializer(serializers.Serializer[Any]):
    """What a request was made of. Digests tell texts apart that `body` holds whole."""

    model = serializers.CharField(help_text="The model's name on its server.")
    api = serializers.ChoiceField(choices=Session.Api.values)
    prompt = serializers.CharField(allow_null=True, help_text="Digest of the system prompt.")
    tools = serializers.CharField(allow_null=True, help_text="Digest of the tools.")
    parameters = serializers.DictField(help_text="Sampling parameters and outgoing form.")
    profile = SentProfileSerializer(allow_null=True)
    summaries = serializers.ListField(child=serializers.UUIDField())
    first_kept = serializers.CharField(
        allow_null=True, help_text="Place of the first message behind the summaries."
    )
    pins = serializers.ListField(
        child=serializers.CharField(), help_text="Places of what was sent for its pin alone."
    )
    cut = serializers.ListField(
        child=serializers.CharField(), help_text="Places of tool results that were sent shortened."
    )
    steps = serializers.ListField(
        child=serializers.CharField(), help_text="Recovery steps that led to it, in order."
    )


class SentMessageSerializer(serializers.Serializer[Any]):
    """One message of the request before its wire: who speaks, and the stored message it is."""

    role = serializers.CharField()
    place = serializers.CharField(
        allow_null=True, help_text="Null for a prompt, a summary and what else is no message."
    )
    is_cut = serializers.BooleanField(
        help_text="Whether something else was sent than its stored content."
    )


class RebuiltSerializer(serializers.Serializer[Any]):
    """A request as it was sent."""

    answer = serializers.UUIDField(help_text="The answer that it was sent for.")
    body = serializers.DictField(help_text="The JSON body that the model's server received.")
    digest = serializers.CharField(help_text="Of the body that was sent; `body` has the same one.")
    made_of = MadeOfSerializer()
    messages = SentMessageSerializer(many=True)
    left_out = LeftOutSerializer(allow_null=True)


def request_json(found: RebuiltRequest) -> dict[str, Any]:
    """Return a rebuilt request as the API answers it."""
    return {
        "answer": str(found.answer.pk),
        "body": found.body,
        "digest": found.digest,
        "made_of": described(found.made_of),
        "messages": [
            {
                "role": part.message["role"],
                "place": None if part.position is None else place_of(part.position),
                "is_cut": part.is_cut,
            }
            for part in found.parts
        ],
        "left_out": found.answer.metadata.get(LEFT_OUT),
    }


class AnswerRequestView(KnownQueryView):
    """What a model was sent for one answer."""

    problems = {"GET": ("no_request", "request_not_kept", "request_changed")}

    @extend_schema(summary="Show what an answer was given", responses=RebuiltSerializer)
    def get(self, request: Request, message_id: UUID) -> Response:
        """Return the request that the answer was given for, rebuilt and compared with its digest.

        It is the one that was sent, or none: 410 says why it cannot be rebuilt.
        """
        return Response(request_json(rebuild(message_of(request.user, message_id))))

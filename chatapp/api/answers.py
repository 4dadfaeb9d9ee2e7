"""What the API answers beside rows: accounts, contexts, finished turns, imports."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from chatapp.api.serializers import MessageSerializer


class AccountSerializer(serializers.Serializer[Any]):
    """Where a request's tokens go."""

    system = serializers.IntegerField()
    tools = serializers.IntegerField()
    summaries = serializers.IntegerField()
    kept = serializers.IntegerField()
    pending = serializers.IntegerField()
    reserve = serializers.IntegerField()
    window = serializers.IntegerField()
    counter = serializers.CharField()
    exact = serializers.BooleanField()
    tokens_per_count = serializers.FloatField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()


class ContextSerializer(serializers.Serializer[Any]):
    """Exactly what the next request would send, with the token account and the backend's news.

    `messages` on the chat wire, `input` on the Responses wire.
    """

    messages = serializers.ListField(child=serializers.DictField(), required=False)
    input = serializers.ListField(child=serializers.DictField(), required=False)
    account = AccountSerializer()
    facts = serializers.DictField()


class StoredSerializer(serializers.Serializer[Any]):
    """The messages that a request stored, in order."""

    messages = MessageSerializer(many=True)


class TurnResultSerializer(serializers.Serializer[Any]):
    """A finished turn."""

    messages = MessageSerializer(many=True)
    answer = MessageSerializer()
    context = AccountSerializer()  # type: ignore[assignment]  # the base class's has that name
    run = serializers.UUIDField(allow_null=True)


class ImportedSessionSerializer(serializers.Serializer[Any]):
    """What one conversation of a file became."""

    session = serializers.UUIDField()
    title = serializers.CharField()
    format = serializers.CharField()
    messages_added = serializers.IntegerField()
    created = serializers.BooleanField()


class ImportResultSerializer(serializers.Serializer[Any]):
    """What an import stored and what it left out, line by line."""

    sessions = ImportedSessionSerializer(many=True)
    problems = serializers.ListField(child=serializers.DictField())

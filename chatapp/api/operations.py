"""How the OpenAPI schema describes an operation: its parameters, its problems, and what they mean.

A view declares what is its own: `query` (parameters of reading), `problems` (codes a method may
answer with). The rest follows from the kind of request (chatapp/api/problems.py).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from rest_framework.permissions import SAFE_METHODS

# What describes bodies registers itself.
from chatapp.api import wire_schema  # noqa: F401
from chatapp.api.base import PAGE_SIZE, AnyAccept, KnownQueryView
from chatapp.api.brief import BriefMessageSerializer
from chatapp.api.problems import problem_responses, usual_codes
from chatapp.api.serializers import (
    LightMessageSerializer,
    MessageSerializer,
    MessageSizeSerializer,
)


class ApiSchema(AutoSchema):
    """Describes the operations of the API's views."""

    def get_override_parameters(self) -> list[Any]:
        """Return the view's own query parameters; other methods than those of reading have none."""
        view = self.view
        if self.method not in SAFE_METHODS or not isinstance(view, KnownQueryView):
            return []
        # Views of several methods name a page's size for those that answer with a page.
        is_list = self._is_list_view()
        asked = [one for one in view.parameters() if is_list or one is not PAGE_SIZE]
        return [parameter.described() for parameter in asked]

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the operation with everything that it may answer."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        if "requestBody" in operation and not self._takes_nothing(operation["requestBody"]):
            operation["requestBody"]["required"] = True
        for status, response in operation["responses"].items():
            response["description"] = response["description"] or HTTPStatus(int(status)).phrase
        responses = operation["responses"] | self._problems(operation)
        operation["responses"] = dict(sorted(responses.items()))
        return operation

    def _takes_nothing(self, body: dict[str, Any]) -> bool:
        """Whether a request may come without a body, which is read as an empty object."""
        reference = body["content"].get("application/json", {}).get("schema", {}).get("$ref")
        if reference is None:
            return False
        component = self.registry[reference.rsplit("/", 1)[-1], ResolvedComponent.SCHEMA]
        return not {"required", "anyOf"} & set(component.schema)

    def _problems(self, operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
        parameters = operation.get("parameters", [])
        usual = usual_codes(
            writes=self.method not in SAFE_METHODS,
            has_body="requestBody" in operation,
            is_found=any(one["in"] == "path" or one["name"] == "cursor" for one in parameters),
            any_accept=issubclass(self.view.content_negotiation_class, AnyAccept),
        )
        own = getattr(self.view, "problems", {}).get(self.method, ())
        return problem_responses([*usual, *own])


class AnyMessage(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """A message with all fields, with those that `fields` names, or as `verbosity` tells it."""

    target_class = "chatapp.api.serializers.AnyMessageSerializer"

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the forms of a message."""
        forms = (
            *(MessageSerializer, LightMessageSerializer),
            *(MessageSizeSerializer, BriefMessageSerializer),
        )
        return {"anyOf": [auto_schema.resolve_serializer(form, direction).ref for form in forms]}

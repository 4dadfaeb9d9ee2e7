"""The product's addresses with a few more: views that do as little as can be.

They are what server, middleware, framework and one statement take of a request; the rest of a row
is the product's. A benchmark's processes have this module as their ROOT_URLCONF.
"""

from __future__ import annotations

import random
from typing import Any

from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.views import APIView

from chatapp import urls
from chatapp.models import Message
from chatapp.urls import handler404, handler500

__all__ = ["handler404", "handler500", "urlpatterns"]

CONSTANT, ROWS = "/floor/", "/floor/rows/"
PAGE = 100


class _Open(APIView):
    """Asks nobody who he is."""

    authentication_classes: Any = ()
    permission_classes: Any = ()


class Floor(_Open):
    """Answers a constant to everybody."""

    def get(self, request: Request) -> Response:
        return Response({"status": "ok"})


class _Plain(ModelSerializer):  # type: ignore[type-arg]
    class Meta:
        model = Message
        exclude = ("session",)


class FloorRows(_Open):
    """Reads a branch's newest rows by one SELECT, or stores one by one INSERT."""

    def get(self, request: Request) -> Response:
        rows = Message.objects.filter(branch=request.query_params["branch"])
        return Response(_Plain(rows.order_by("-position")[:PAGE], many=True).data)

    def post(self, request: Request) -> Response:
        row = Message.objects.create(
            session_id=request.data["session"],
            branch_id=request.data["branch"],
            # Somewhere far behind what the branch has.
            position=random.getrandbits(40) << 20,
            role=request.data["role"],
            content=request.data["content"],
        )
        return Response({"id": row.pk}, status=201)


urlpatterns = [
    *urls.urlpatterns,
    path("floor/", Floor.as_view()),
    path("floor/rows/", FloorRows.as_view()),
]

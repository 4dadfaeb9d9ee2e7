"""The product's ASGI application with one more address: a view that does nothing.

What it takes is what server, middleware and framework take of every request; the rest of a row is
the product's.
"""

from __future__ import annotations

from chatapp.asgi import application  # isort: skip  # it loads the settings and the apps

from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chatapp import urls

__all__ = ["application"]


class Floor(APIView):
    """Answers a constant to everybody."""

    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> Response:
        return Response({"status": "ok"})


urls.urlpatterns.append(path("floor/", Floor.as_view()))

"""Transcripts in and out: sessions/import/ and sessions/{id}/export/."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import parsers, status
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chatapp.api.base import AnyAccept, SessionView
from chatapp.api.exceptions import Unprocessable
from chatapp.api.parsers import BodyTooLarge
from chatapp.api.serializers import ImportResultSerializer
from chatapp.conf import chatapp_settings
from chatapp.formats import UnknownFormatError
from chatapp.transfer import export_json, export_jsonl, import_file


class RawParser(parsers.BaseParser):
    """Takes any body as bytes: a file's format is told from its content."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the body's bytes."""
        return stream.read()


class ImportView(APIView):
    """POST a transcript file (the body, or a form's `file`): OpenAI chat, pi, Claude Code."""

    parser_classes = [parsers.MultiPartParser, RawParser]

    @extend_schema(
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={201: ImportResultSerializer},
    )
    def post(self, request: Request) -> Response:
        """Store every conversation of the file; say line by line what was left out."""
        limit = chatapp_settings.max_import_bytes
        if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
            raise BodyTooLarge(f"A file may have {limit:,} bytes (MAX_IMPORT_BYTES).")
        content, name = self._content(request)
        try:
            report = import_file(owner=request.user, content=content, name=name)
        except UnknownFormatError as error:
            raise Unprocessable(str(error), code="unknown_format") from error
        body = {
            "sessions": [
                {
                    "session": str(item.session.pk),
                    "title": item.session.title,
                    "format": item.format,
                    "messages_added": item.messages_added,
                    "created": item.created,
                }
                for item in report.imported
            ],
            "problems": [{"line": p.line, "text": p.text} for p in report.problems],
        }
        return Response(body, status=status.HTTP_201_CREATED)

    def _content(self, request: Request) -> tuple[bytes, str]:
        data: Any = request.data
        if isinstance(data, bytes):
            return data, ""
        upload = data.get("file")
        if upload is None or isinstance(upload, str):
            raise ValidationError({"file": ["Send the file as the form's field `file`."]})
        return upload.read(), upload.name or ""


class ExportView(SessionView):
    """The active branch as OpenAI chat JSON, or as one line of JSONL."""

    content_negotiation_class: type[BaseContentNegotiation] = AnyAccept

    @extend_schema(
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "application/x-ndjson"): OpenApiTypes.STR,
        },
        parameters=[OpenApiParameter("as", str, enum=["json", "jsonl"])],
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Return the whole conversation; it imports back equal."""
        session = self.get_session()
        wanted = request.query_params.get("as", "json")
        if wanted not in ("json", "jsonl"):
            raise ValidationError({"as": ["json or jsonl."]})
        if wanted == "jsonl":
            text, kind = export_jsonl([session]), "application/x-ndjson"
        else:
            text = json.dumps(export_json(session), ensure_ascii=False, indent=2)
            kind = "application/json"
        response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="session-{session.pk}.{wanted}"'
        response["X-Content-Type-Options"] = "nosniff"
        return response

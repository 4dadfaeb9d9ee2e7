"""Transcripts in and out: sessions/import/ and sessions/{id}/export/."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import parsers, status
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import AnyAccept, KnownQueryView, SessionView
from chatapp.api.exceptions import Unprocessable
from chatapp.api.operations import ApiSchema
from chatapp.api.parsers import BodyTooLarge
from chatapp.api.serializers import ImportResultSerializer
from chatapp.conf import chatapp_settings
from chatapp.formats import UnknownFormatError, all_exports
from chatapp.pools import Pool, answered_in
from chatapp.transfer import export_sessions, import_file


class RawParser(parsers.BaseParser):
    """Takes any body as bytes: a file's format is told from its content."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the body's bytes."""
        return stream.read()


@answered_in(Pool.SLOW)
class ImportView(KnownQueryView):
    """POST a transcript file (the body, or a form's `file`) of any format that is registered."""

    parser_classes = [parsers.MultiPartParser, RawParser]

    problems = {"POST": ("unknown_format", "too_much_at_once")}

    @extend_schema(
        summary="Import a file",
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
            "sessions": [item.as_dict() for item in report.imported],
            "problems": [asdict(problem) for problem in report.problems],
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


class ExportSchema(ApiSchema):
    """Lists the forms of exports when the schema is asked for: settings add some."""

    def get_summary(self) -> str:
        """Return what the operation does in a few words."""
        return "Export a session"

    def get_override_parameters(self) -> list[Any]:
        """Return the parameter that chooses a form."""
        return [OpenApiParameter("as", str, enum=list(all_exports()))]

    def get_response_serializers(self) -> Any:
        """Return what each form's media type holds."""
        return {
            (200, export.media_type): OpenApiTypes.OBJECT
            if export.media_type == "application/json"
            else OpenApiTypes.STR
            for export in all_exports().values()
        }


class ExportView(SessionView):
    """The active branch, whole, in one of the forms that formats are written in."""

    query = ("as",)

    content_negotiation_class: type[BaseContentNegotiation] = AnyAccept
    schema = ExportSchema()

    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Return the whole conversation; as `json` and `jsonl` it imports back equal."""
        session = self.get_session()
        exports = all_exports()
        export = exports.get(request.query_params.get("as", "json"))
        if export is None:
            raise ValidationError({"as": [f"{' or '.join(exports)}."]})
        response = HttpResponse(
            "".join(export_sessions([session], export)),
            content_type=f"{export.media_type}; charset=utf-8",
        )
        filename = f"session-{session.pk}{export.ending}"
        response["Content-Disposition"] = f'attachment; filename="{filename}"'
        response["X-Content-Type-Options"] = "nosniff"
        return response

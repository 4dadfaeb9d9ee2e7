"""Transcripts in and out: sessions/import/ and sessions/{id}/export/."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import parsers, status
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import AnyAccept, KnownQueryView, SessionView
from chatapp.api.brief import VERBOSITY
from chatapp.api.exceptions import Conflict, Unprocessable
from chatapp.api.imports import TooManyImports, WholeImportSerializer, address_of, as_whole_dict
from chatapp.api.operations import ApiSchema
from chatapp.api.parsers import BodyTooLarge
from chatapp.api.serializers import ImportResultSerializer
from chatapp.brief_export import export_briefly
from chatapp.conf import chatapp_settings
from chatapp.downloads import whole_download
from chatapp.exports import SessionGoneError, export_sessions
from chatapp.formats import TooMuchInFileError, UnknownFormatError, all_exports
from chatapp.import_work import ImportEndedError, ImportFailedError
from chatapp.imports import Accepted, TooManyImportsError, accept_file
from chatapp.messages.verbosity import Verbosity
from chatapp.pools import CLIENT_LEFT, Pool, answered_in
from chatapp.spooled_files import SpooledFile


class RawParser(parsers.BaseParser):
    """Takes any body as a file: its format is told from its content."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the body as a file."""
        return SpooledFile.read_from(stream)


PREFER_BACKGROUND = "respond-async"


@answered_in(Pool.SLOW)
class ImportView(KnownQueryView):
    """POST a transcript file (the body, or a form's `file`) of any format that is registered."""

    parser_classes = [parsers.MultiPartParser, RawParser]

    problems = {
        "POST": (
            "unknown_format",
            "too_many_lines",
            "too_many_conversations",
            "too_many_values",
            "import_too_slow",
            "not_stored",
            "import_ended",
            "too_many_imports",
        )
    }

    @extend_schema(
        summary="Import a file",
        request={
            "application/octet-stream": {"type": "string", "format": "binary", "minLength": 1}
        },
        parameters=[
            OpenApiParameter(
                "Prefer",
                str,
                OpenApiParameter.HEADER,
                description=f"`{PREFER_BACKGROUND}` has any file imported in the background.",
            )
        ],
        responses={201: ImportResultSerializer, 202: WholeImportSerializer},
    )
    def post(self, request: Request) -> Response:
        """Store every conversation of the file; say line by line what was left out.

        A large file is imported in the background: 202, and `Location` tells where to look.
        """
        limit = chatapp_settings.max_import_bytes
        if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
            raise BodyTooLarge(f"A file may have {limit:,} bytes (MAX_IMPORT_BYTES).")
        content, name = self._content(request)
        wishes = [wish.strip().lower() for wish in request.headers.get("Prefer", "").split(",")]
        accepted = self._accepted(content, name, in_background=PREFER_BACKGROUND in wishes)
        where = {"Location": address_of(request, accepted.job)}
        if accepted.is_waiting:
            body = as_whole_dict(accepted.job)
            return Response(body, status=status.HTTP_202_ACCEPTED, headers=where)
        body = {
            "sessions": [item.as_dict() for item in accepted.imported],
            "problems": [asdict(problem) for problem in accepted.problems.told()],
        }
        return Response(body, status=status.HTTP_201_CREATED, headers=where)

    def _accepted(self, content: SpooledFile, name: str, *, in_background: bool) -> Accepted:
        # Our ASGI handler tells of a client that goes away; other servers do not.
        left: Any = getattr(self.request, "scope", {}).get(CLIENT_LEFT)
        try:
            return accept_file(
                owner=self.request.user,
                content=content,
                name=name,
                in_background=in_background,
                is_abandoned=left.is_set if left is not None else lambda: False,
            )
        except UnknownFormatError as error:
            raise Unprocessable(str(error), code="unknown_format") from error
        except (TooMuchInFileError, ImportFailedError) as error:
            raise Unprocessable(str(error), code=error.code) from error
        except ImportEndedError as error:
            sentence = "The import was cancelled; what was stored until then stays."
            raise Conflict(sentence, code="import_ended") from error
        except TooManyImportsError as error:
            refusal = TooManyImports(str(error))
            refusal.wait = error.retry_after
            raise refusal from error

    def _content(self, request: Request) -> tuple[SpooledFile, str]:
        data: Any = request.data
        if isinstance(data, SpooledFile):
            return data, ""
        upload = data.get("file")
        if upload is None or isinstance(upload, str):
            raise ValidationError({"file": ["Send the file as the form's field `file`."]})
        return SpooledFile(upload.chunks()), upload.name or ""


class ExportSchema(ApiSchema):
    """Lists the forms of exports when the schema is asked for: settings add some."""

    def get_summary(self) -> str:
        """Return what the operation does in a few words."""
        return "Export a session"

    def get_override_parameters(self) -> list[Any]:
        """Return the parameter that chooses a form, and the others."""
        form = OpenApiParameter("as", str, enum=list(all_exports()))
        return [form, *super().get_override_parameters()]

    def get_response_serializers(self) -> Any:
        """Return what each form's media type holds."""
        return {
            (200, export.media_type): OpenApiTypes.OBJECT
            if export.media_type == "application/json"
            else OpenApiTypes.STR
            for export in all_exports().values()
        }


@answered_in(Pool.SLOW)
class ExportView(SessionView):
    """The active branch, whole, in one of the forms that formats are written in."""

    query = ("as", VERBOSITY)

    content_negotiation_class: type[BaseContentNegotiation] = AnyAccept
    schema = ExportSchema()

    def get(self, request: Request, session_id: str) -> HttpResponseBase:
        """Return the whole conversation; as `json` and `jsonl` it imports back equal.

        With `verbosity` it is told briefly in whatever form, to be read.
        """
        session = self.get_session()
        exports = all_exports()
        export = exports.get(request.query_params.get("as", "json"))
        if export is None:
            raise ValidationError({"as": [f"{' or '.join(exports)}."]})
        verbosity = Verbosity(self.asked.get("verbosity", Verbosity.DEFAULT))
        if verbosity is Verbosity.DEFAULT:
            parts = export_sessions([session], export)
        else:
            parts = export_briefly([session], export, verbosity)
        try:
            return whole_download(
                request._request,
                parts,
                filename=f"session-{session.pk}{export.ending}",
                media_type=export.media_type,
            )
        except SessionGoneError as error:
            raise Http404 from error

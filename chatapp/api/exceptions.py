"""Every error as a problem document (RFC 9457): type, title, status, detail, and field errors."""

from __future__ import annotations

import errno
import logging
import sys
from http import HTTPStatus
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db import (
    DatabaseError,
    IntegrityError,
)
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template import loader
from django.utils.deprecation import MiddlewareMixin
from django.views import defaults
from rest_framework import exceptions, renderers, status
from rest_framework.response import Response
from rest_framework.views import exception_handler

from chatapp.api.problems import CODE_OF_STATUS, PROBLEM_TYPE
from chatapp.database import AWAY, BUSY, trouble_of
from chatapp.late_answers import AnswerNotStoredError
from chatapp.llm.registry import UnknownModelError
from chatapp.messages.wire import InvalidMessageError
from chatapp.models import Session
from chatapp.pools import TooMuchAtOnceError
from chatapp.transcript.writing import KeyReusedError, TranscriptError
from chatapp.turns.attempts import NothingToAnswerError
from chatapp.turns.lease import TooManyTurnsError, TurnInProgressError
from chatapp.turns.rebuilding import NoRequestError, RequestGoneError
from chatapp.turns.service import TurnFailedError

logger = logging.getLogger(__name__)


class ProblemRenderer(renderers.JSONRenderer):
    """JSON under the problem documents' media type."""

    media_type = PROBLEM_TYPE
    # What a client sent is quoted, half an emoji included, which only an escape can carry.
    ensure_ascii = True


class Later(exceptions.APIException):
    """The request can be sent again; `wait` are the seconds of the Retry-After header, if any."""

    wait: int | None = None


class Conflict(Later):
    """The request does not fit the state of things."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class Unprocessable(exceptions.APIException):
    """The request was understood and cannot be done."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


class Unavailable(Later):
    """The database or the disk cannot be used just now; what was stored is stored."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"


class AnswerNotStored(Unavailable):
    """The model answered, and the database does not take its answer, which is told here."""

    default_code = "answer_not_stored"

    def __init__(self, failure: AnswerNotStoredError) -> None:
        super().__init__(str(failure))
        self.answer = failure.answer
        self.wait = AWAY.seconds


class TooManyTurns(Later):
    """The owner has as many turns under way as one owner may."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_code = "too_many_turns"


class TooMuchAtOnce(Later):
    """The user has as much slow work under way as one user may."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_code = "too_much_at_once"


class Gone(exceptions.APIException):
    """What was asked for was there, or is not told by what is stored."""

    status_code = status.HTTP_410_GONE
    default_code = "request_not_kept"


class BadGateway(exceptions.APIException):
    """The model server did not give an answer."""

    status_code = status.HTTP_502_BAD_GATEWAY
    default_code = "model_error"


# A large file lies on the disk while it is read, and so do the parts of messages.
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


def _translate(error: Exception) -> Exception:
    if isinstance(error, InvalidMessageError):
        return exceptions.ValidationError({"messages": [str(error)]})
    if isinstance(error, TurnInProgressError):
        return _later(Conflict(str(error), code="turn_in_progress"), error.retry_after)
    if isinstance(error, TooMuchAtOnceError):
        return _later(TooMuchAtOnce(str(error)), error.retry_after)
    if isinstance(error, TooManyTurnsError):
        return _later(TooManyTurns(str(error)), error.retry_after)
    if isinstance(error, KeyReusedError):
        return Unprocessable(str(error), code="key_reused")
    if isinstance(error, TranscriptError):
        return Conflict(str(error))
    if isinstance(error, UnknownModelError):
        return Unprocessable(str(error), code="unknown_model")
    if isinstance(error, NothingToAnswerError):
        return Unprocessable(str(error), code="nothing_to_answer")
    if isinstance(error, NoRequestError):
        return exceptions.NotFound(str(error), code="no_request")
    if isinstance(error, RequestGoneError):
        return Gone(str(error), code=error.code)
    if isinstance(error, AnswerNotStoredError):
        return AnswerNotStored(error)
    if isinstance(error, TurnFailedError):
        return BadGateway(str(error), code=error.error.kind.value)
    if isinstance(error, OSError) and error.errno in _DISK_IS_FULL:
        full = "The server's disk is full. What was stored is stored; try again later."
        return _later(Unavailable(full), AWAY.seconds)
    if isinstance(error, Http404 | ObjectDoesNotExist):  # or deleted since it was looked up
        return exceptions.NotFound()
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied()
    return error


def _about_deletion(error: Exception, context: dict[str, Any]) -> Exception:
    """Return what a database's refusal means where a session is deleted while it is used."""
    # A database that is away is not asked: that would wait as long once more.
    if not isinstance(error, IntegrityError) and trouble_of(error) is not BUSY:
        return error
    session_id = context.get("kwargs", {}).get("session_id")
    if session_id is None:
        return error
    try:
        is_there = Session.objects.filter(pk=session_id).exists()
    except DatabaseError:
        return error
    return error if is_there else exceptions.NotFound()


def _later(error: Later, seconds: int) -> Later:
    """Return an error that says when to come back, in a Retry-After header."""
    error.wait = seconds
    return error


def _about_database(error: Exception) -> Exception:
    """Return what trouble with the database means for a client: 503, and when to come back."""
    if (trouble := trouble_of(error)) is None:
        return error
    return _later(Unavailable(trouble.sentence, code=trouble.code), trouble.seconds)


def problem_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the problem document for an error; None lets Django answer 500."""
    error = _translate(_about_database(_about_deletion(error, context)))
    response = exception_handler(error, context)
    if response is None or not isinstance(error, exceptions.APIException):
        return response
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(response.status_code).phrase,
        "status": response.status_code,
        "detail": _detail(error),
    }
    codes = error.get_codes()
    if isinstance(codes, str):
        problem["code"] = codes
    if isinstance(error, exceptions.ValidationError):
        problem["code"] = "invalid"
        problem["errors"] = response.data
    if isinstance(error, AnswerNotStored):
        problem["answer"] = error.answer
    response.data = problem
    request = context.get("request")
    if request is not None:
        request.accepted_renderer = ProblemRenderer()
        request.accepted_media_type = PROBLEM_TYPE
    response.content_type = PROBLEM_TYPE
    return response


def _detail(error: exceptions.APIException) -> str:
    if isinstance(error, exceptions.ValidationError):
        return "The request has fields that cannot be used; `errors` says which and why."
    return str(error.detail)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer an address that does not exist: a problem document under /api/, a page elsewhere."""
    if not request.path.startswith("/api/"):
        return defaults.page_not_found(request, exception)
    return plain_problem(404, "There is no such address; /api/v1/docs/ lists those there are.")


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer a fault of ours: a problem document under /api/, a page elsewhere."""
    is_api = request.path.startswith("/api/")
    raised = sys.exc_info()[1]
    error = _about_database(raised) if isinstance(raised, Exception) else None
    if isinstance(error, Unavailable):
        # A page, or what failed outside the API's views, such as in a middleware.
        return _unavailable(error, as_page=not is_api)
    if not is_api:
        return _server_error_page(request)
    return plain_problem(500, "The server failed; its log says why. What was stored is stored.")


def _unavailable(error: Unavailable, *, as_page: bool) -> HttpResponseBase:
    sentence, code = str(error.detail), str(error.get_codes())
    response: HttpResponseBase
    if as_page:
        # Without the request: who is logged in only the database says.
        response = _page_of_trouble(sentence, code, error.wait)
    else:
        response = plain_problem(503, sentence, code=code)
    response["Retry-After"] = str(error.wait)
    response["Cache-Control"] = "no-store"
    return response


def _page_of_trouble(sentence: str, code: str, seconds: int | None) -> HttpResponse:
    """Return the page for trouble with the database; a plain text where that page fails."""
    words = {"sentence": sentence, "code": code, "seconds": seconds}
    try:
        return HttpResponse(loader.render_to_string("503.html", words), status=503)
    except Exception:  # a template of an installation's own, say; nothing stands behind this
        logger.exception("The page for trouble with the database failed; a text was sent.")
        return HttpResponse(
            f"{sentence} ({code})\n", status=503, content_type="text/plain; charset=utf-8"
        )


def _server_error_page(request: HttpRequest) -> HttpResponseBase:
    """Return Django's page for a fault of ours, or a plain text where its template fails."""
    try:
        return defaults.server_error(request)
    except Exception:
        logger.exception("The page for a fault failed; a text was sent.")
        return HttpResponse(
            "The server failed; its log says why. What was stored is stored.\n",
            status=500,
            content_type="text/plain; charset=utf-8",
        )


def plain_problem(status: int, detail: str, *, code: str = "") -> JsonResponse:
    """Return a problem document from outside the API's views."""
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code or CODE_OF_STATUS[status],
    }
    return JsonResponse(problem, status=status, content_type=PROBLEM_TYPE)


class LengthRequiredMiddleware(MiddlewareMixin):
    """Refuses bodies of unknown length: the frameworks would read them as empty."""

    def process_request(self, request: HttpRequest) -> HttpResponseBase | None:
        """Return 411 for a body that is sent in chunks."""
        is_chunked = "HTTP_TRANSFER_ENCODING" in request.META
        if not is_chunked or request.META.get("CONTENT_LENGTH"):
            return None
        return plain_problem(
            411, "The body came without its length. Send a Content-Length header, not chunks."
        )

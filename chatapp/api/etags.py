"""ETag and If-None-Match: a client that has an answer already gets 304 and no body.

A tag is a digest of all that makes the answer what it is: of its bytes, or of what they are made
of where that is read more cheaply. Answers are `no-store` (chatapp/api/access.py): browsers keep
none by themselves, clients that ask again and again keep the last one and its tag.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

DIGEST_BYTES = 16
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    description="The `ETag` of an earlier answer. While that is what would be answered, the answer "
    "is 304 without a body.",
)
ETAG = OpenApiParameter(
    "ETag",
    {"type": "string", "pattern": '^"[0-9a-f]+"$'},
    OpenApiParameter.HEADER,
    description="Changes with everything that changes the answer.",
    response=[200, 304],
    required=True,
)
NOT_MODIFIED = OpenApiResponse(description="The answer is the one that `If-None-Match` names.")


def tag_of(*made_of: bytes | str) -> str:
    """Return the tag of an answer by what it is made of, the bytes themselves for example."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in made_of:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        # With its length before it, no part's end is taken for the beginning of the next.
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f'"{digest.hexdigest()}"'


def has_already(request: Request, tag: str) -> bool:
    """Whether the client says that it has the answer with this tag."""
    known = request.META.get("HTTP_IF_NONE_MATCH")
    if not known:
        return False
    tags = [one.removeprefix("W/") for one in parse_etags(known)]
    return tag in tags or tags == ["*"]


def not_modified(tag: str) -> Response:
    """Return 304: the answer is the one that the client has."""
    return Response(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})


def tagged(request: Request, body: bytes) -> Response:
    """Return the answer with a tag made of its bytes, or 304 where the client has it."""
    tag = tag_of(body)
    if has_already(request, tag):
        return not_modified(tag)
    headers: dict[str, Any] = {"ETag": tag}
    return Response(body, headers=headers)

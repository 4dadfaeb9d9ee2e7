"""Query parameters: declared once, for the schema, for what may be sent, and for who reads them."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from chatapp.api.json_types import is_uuid, unknown_names

NUL = "\x00"


class Kind(enum.Enum):
    """What the text of a parameter stands for."""

    TEXT = OpenApiTypes.STR
    ID = OpenApiTypes.UUID
    FLAG = OpenApiTypes.BOOL
    COUNT = OpenApiTypes.INT


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """One parameter of GET. `choices` are all texts that it takes; None stands for any.

    A count is a whole number from 1.
    """

    name: str
    description: str
    kind: Kind = Kind.TEXT
    choices: Sequence[str] | None = None

    def read(self, text: str) -> Any:
        """Return the value: a text, a UUID, a bool, a number. Raises ValueError with a sentence."""
        if self.choices is not None:
            if text not in self.choices:
                raise ValueError(f"Must be one of {', '.join(self.choices)}.")
            return text
        return _READERS[self.kind](text)

    def described(self) -> OpenApiParameter:
        """Return the parameter for the schema."""
        enum_of = None if self.choices is None else list(self.choices)
        described: Any = self.kind.value
        if self.kind is Kind.COUNT:
            described = {"type": "integer", "minimum": 1}
        return OpenApiParameter(self.name, described, description=self.description, enum=enum_of)


def _text(text: str) -> str:
    if NUL in text:
        raise ValueError("Has a NUL character, which is no text.")
    return text


def _id(text: str) -> UUID:
    if not is_uuid(text):
        raise ValueError("Must be a UUID: 32 digits with hyphens, as the API writes it.")
    return UUID(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("Must be true or false.")
    return text == "true"


def _count(text: str) -> int:
    if _COUNT.fullmatch(text) is None:
        raise ValueError("Must be a whole number from 1.")
    return int(text[:MAX_COUNT_DIGITS])


# A larger number is as good as any other that is too large.
MAX_COUNT_DIGITS = 18
_COUNT = re.compile("[1-9][0-9]*")
_READERS: Mapping[Kind, Callable[[str], Any]] = {
    Kind.TEXT: _text,
    Kind.ID: _id,
    Kind.FLAG: _flag,
    Kind.COUNT: _count,
}


def read_query(
    request: Request, parameters: Sequence[QueryParameter], others: Collection[str]
) -> dict[str, Any]:
    """Return the values of the parameters that were sent, by their names.

    Raises ValidationError for a name that is neither among the parameters nor the others, for one
    that comes twice, and for a value that the parameter does not take. Parameters are those of
    reading: other methods know the others alone.
    """
    known = {one.name: one for one in parameters} if request.method in SAFE_METHODS else {}
    sent = request.query_params
    wrong = unknown_names(sent, (*known, *others), what="query parameter")
    values: dict[str, Any] = {}
    for name, texts in sent.lists():
        if name in wrong:
            continue
        if len(texts) > 1:
            wrong[name] = ["It comes more than once. Send one of them."]
        elif name in known:
            try:
                values[name] = known[name].read(texts[0])
            except ValueError as error:
                wrong[name] = [str(error)]
    if wrong:
        raise ValidationError(wrong)
    return values

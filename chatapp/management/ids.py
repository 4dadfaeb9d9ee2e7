"""Rows by the beginning of their id, as lists and tables show it."""

from __future__ import annotations

import re
from typing import TypeVar
from uuid import UUID

from django.core.management.base import CommandError
from django.db.models import Model, QuerySet

LEAST_DIGITS = 4
MOST_NAMED = 5
_DIGITS = 32
_Row = TypeVar("_Row", bound=Model)


def find_by_id(rows: QuerySet[_Row], text: str, *, noun: str) -> _Row:
    """Return the only row whose id starts with `text`, hyphens or not.

    Raises CommandError with a sentence when it is no id, too short, unknown or not unique. Asked as
    a range, so that the index of the primary key answers it on every database.
    """
    digits = text.strip().lower().replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{1,{_DIGITS}}}", digits):
        raise CommandError(
            f"“{text}” is no {noun} id. Ids look like 0f8b…-…; the API and the admin show them."
        )
    if len(digits) < LEAST_DIGITS:
        raise CommandError(
            f"“{text}” is too short: write at least the first {LEAST_DIGITS} digits of the id."
        )
    first, last = UUID(digits.ljust(_DIGITS, "0")), UUID(digits.ljust(_DIGITS, "f"))
    found = list(rows.filter(pk__gte=first, pk__lte=last).order_by("pk")[: MOST_NAMED + 1])
    if not found:
        raise CommandError(f"There is no {noun} whose id is or starts with “{text}”.")
    if len(found) > 1:
        names = ", ".join(str(row.pk) for row in found[:MOST_NAMED])
        more = ", …" if len(found) > MOST_NAMED else ""
        raise CommandError(
            f"More than one {noun} id starts with “{text}”: {names}{more}. Write more of it."
        )
    return found[0]

"""Ids of rows: made in the order of time, shown by their end, found by either.

New rows get UUIDv7: 48 bits of milliseconds, then a counter, then 32 random bits. Rows that are
made one after another stand side by side in their indexes, so an INSERT touches the page that the
last one did. Older rows have random ids (UUIDv4) and keep them; nothing tells the time or the order
of rows by their ids. What an id tells others: SECURITY.md.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.db.models import Model, Q, QuerySet
from uuid_utils.compat import uuid7

SHORT_CHARS = 8
"""So much of an id is shown: of a new one these are its random bits."""
LEAST_DIGITS = 4
DIGITS = 32
# So many rows of one end are enough to show that it names none of them.
MOST_FOUND = 50
_HEX = re.compile(f"[0-9a-f]{{1,{DIGITS}}}")


def new_id() -> UUID:
    """Return a new row's id: greater than all that this process made before.

    Safe among threads; a forked process draws bits of its own.
    """
    return uuid7()


def short_id(pk: Any) -> str:
    """Return the end of an id, enough to search for it: new ids begin alike for a minute."""
    return str(pk)[-SHORT_CHARS:]


def digits_of(text: str) -> str:
    """Return the digits of an id or of a part of one, hyphens or not; "" for what is no such."""
    digits = text.strip().lower().replace("-", "")
    return digits if _HEX.fullmatch(digits) else ""


def hex_range(text: str) -> tuple[UUID, UUID] | None:
    """Return the first and last id that begin with the text; None when it begins no id.

    A range, because a UUID column of PostgreSQL knows no LIKE, and an index serves it everywhere.
    """
    digits = digits_of(text)
    if len(digits) < LEAST_DIGITS:
        return None
    return UUID(digits.ljust(DIGITS, "0")), UUID(digits.ljust(DIGITS, "f"))


def id_q(model: type[Model], text: str, *paths: str) -> Q:
    """Return the condition for rows of which an id at one of the paths begins or ends so.

    `paths` are columns with ids, the row's own or others'. Ends shorter than those that are shown
    are not looked for. No row has a text that is no part of an id.

    The beginning is a range of an index. The end is looked up first, in the keys alone: among other
    conditions it would keep the database from the indexes of all of them.
    """
    ids = hex_range(text)
    found = Q(pk__in=[])
    if ids is None:
        return found
    digits = digits_of(text)
    for path in paths:
        found |= Q(**{f"{path}__gte": ids[0], f"{path}__lte": ids[1]})
        if SHORT_CHARS <= len(digits) < DIGITS:
            keys = _target(model, path)._default_manager.all()
            found |= Q(**{f"{path}__in": _keys_ending(keys, digits)})
    return found


def own_id_q(rows: QuerySet[Any], text: str) -> Q:
    """Return the same for the ids of these rows, down to ends of LEAST_DIGITS.

    Many rows have a short end in common: it is looked for among these rows alone.
    """
    ids, digits = hex_range(text), digits_of(text)
    if ids is None:
        return Q(pk__in=[])
    ending = _keys_ending(rows, digits) if len(digits) < DIGITS else []
    return Q(pk__gte=ids[0], pk__lte=ids[1]) | Q(pk__in=ending)


def _keys_ending(rows: QuerySet[Any], digits: str) -> list[Any]:
    # As the column's text ends: with hyphens where the database has such a type.
    end = str(UUID(digits.rjust(DIGITS, "0")))[-_chars_with_hyphens(digits) :]
    keys = rows.filter(pk__endswith=end).order_by()
    return list(keys.values_list("pk", flat=True)[:MOST_FOUND])


def _chars_with_hyphens(digits: str) -> int:
    """Return how many characters the last digits of an id take: it is 8-4-4-4-12."""
    return len(digits) + sum(len(digits) > behind for behind in (12, 16, 20, 24))


def _target(model: type[Model], path: str) -> type[Model]:
    """Return the model whose ids stand at a path of relations; the model itself at its own id."""
    for name in path.split("__"):
        related = model._meta.get_field(name).related_model
        if isinstance(related, type):
            model = related
    return model

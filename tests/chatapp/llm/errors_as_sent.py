"""Rows of error tables: what a server sends, and what it means."""

from __future__ import annotations

from typing import NamedTuple

from chatapp.llm.errors import ErrorKind, ModelError, from_body


class Row(NamedTuple):
    """One error of one server. `observed` and `allowed` are the numbers it names."""

    server: str
    message: str
    kind: ErrorKind = ErrorKind.CONTEXT_OVERFLOW
    observed: int | None = None
    allowed: int | None = None
    status: int | None = 400
    code: str | int | None = None
    type: str | None = None
    param: str | None = None

    @property
    def body(self) -> dict:
        error = {"message": self.message, "code": self.code, "type": self.type}
        return {"error": error | ({"param": self.param} if self.param else {})}

    def error(self) -> ModelError:
        return from_body(self.body, status=self.status)


def meaning(error: ModelError) -> tuple:
    return error.kind, error.observed, error.allowed


def names(row: Row) -> str:
    return f"{row.server}: {row.message[:40]}"

"""Messages told briefly: `verbosity=compact` and `verbosity=quiet` of a page of messages.

What is told of a message hangs on its turn, which may go on behind the page, and on a call before
it. Both are read with the page, in one query: a page costs what it costs with everything told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet, Subquery
from rest_framework import serializers
from rest_framework.request import Request

from chatapp.api.base import TranscriptPagination
from chatapp.api.message_json import writers_of
from chatapp.api.query import QueryParameter
from chatapp.api.serializers import MessageSerializer
from chatapp.messages.verbosity import TurnState, Verbosity, call_names, lines_of, marks_of
from chatapp.models import POSITION_STEP, Branch, Message
from chatapp.selectors import GROUP_REACH, TURN_MARKS, is_own, next_turn_mark, path_q

VERBOSITY = QueryParameter(
    name="verbosity",
    choices=[one.value for one in Verbosity],
    description="`compact`: questions and last answers whole, a line for each step between; "
    "`quiet`: questions and last answers alone.",
)
REACH = GROUP_REACH * POSITION_STEP
"""How far a page looks around it with the query that reads it."""


class BriefMessageSerializer(MessageSerializer):
    """A message as `verbosity=compact` and `verbosity=quiet` tell it."""

    lines = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="What is told in place of the content, which then is null: a line for the text "
        "and one for each call. Empty where the content is whole.",
    )
    state = serializers.ChoiceField(
        choices=[state.value for state in TurnState],
        read_only=True,
        allow_null=True,
        help_text="Of a question: what became of its turn. Null for all others.",
    )

    class Meta(MessageSerializer.Meta):
        fields = [
            "id",
            "sequence_id",
            "role",
            "kind",
            "content",
            "lines",
            "state",
            "end",
            "pinned",
            "created_at",
        ]


_TOLD_HERE = ("content", "lines", "state")
_WRITERS = writers_of(
    [name for name in BriefMessageSerializer.Meta.fields if name not in _TOLD_HERE]
)


class BriefPagination(TranscriptPagination):
    """The pages of a branch's messages, each with what its turns become behind it.

    A page of `quiet` is as long as asked for before answers on the way are left out of it.
    """

    verbosity = Verbosity.COMPACT
    branch: Branch

    def told_page(self, branch: Branch, request: Request, view: Any) -> list[dict[str, Any]]:
        """Return the messages of the page asked for as the API tells them."""
        self.branch = branch
        rows = Message.objects.defer("reasoning", "usage", "vendor", "response_id")
        if self.verbosity is Verbosity.QUIET:
            rows = rows.filter(TURN_MARKS)
        rows = rows.filter(self.path_q(branch, request, rows))
        page = self.paginate_queryset(rows, request, view=view) or []
        is_backwards = self.ordering[0].startswith("-")
        told = self._told(page[::-1] if is_backwards else page)
        return told[::-1] if is_backwards else told

    def page_of(self, queryset: Any, places: Sequence[Mapping[str, Any]]) -> QuerySet[Message]:
        """Have the page's query tell what stands around it, too."""
        if not places:
            return queryset  # type: ignore[no-any-return]
        found = [place["position"] for place in places]
        first, last = min(found), max(found)
        after = Message.objects.filter(
            TURN_MARKS, path_q(self.branch, after=last, through=self._looked_at(last))
        )
        before = Message.objects.filter(
            path_q(self.branch, after=max(0, first - 1 - REACH), through=first - 1),
            tool_calls__isnull=False,
        )
        return queryset.annotate(  # type: ignore[no-any-return]
            next_role=Subquery(after.order_by("position").values("role")[:1]),
            calls_before=Subquery(before.order_by("-position").values("tool_calls")[:1]),
        )

    def _looked_at(self, last: int) -> int | None:
        """Return how far the page's query looks; None, to the end, where an index leads there."""
        return None if is_own(self.branch, last) else last + REACH

    def _told(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        if not rows:
            return []
        names = call_names([Message(tool_calls=rows[0].calls_before), *rows])
        marks = marks_of(rows, next_role=self._next_role(rows[-1]))
        return [
            _written(row, [] if mark.is_whole else lines_of(row, names), mark.state)
            for row, mark in zip(rows, marks, strict=True)
            if mark.is_whole or self.verbosity is Verbosity.COMPACT
        ]

    def _next_role(self, newest: Any) -> str | None:
        looked_at = self._looked_at(newest.position)
        if newest.next_role is None and looked_at is not None:
            return next_turn_mark(self.branch, after=looked_at)
        return newest.next_role  # type: ignore[no-any-return]


def _written(row: Message, lines: list[str], state: TurnState | None) -> dict[str, Any]:
    """Return a message's fields in the serializer's order."""
    told = {name: write(row) for name, write in _WRITERS}
    told |= {"content": None if lines else row.content_with_files(), "lines": lines, "state": state}
    return {name: told[name] for name in BriefMessageSerializer.Meta.fields}

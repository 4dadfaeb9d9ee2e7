"""The outline of a session's tree: sessions/{id}/tree/, forks and line ends, page by page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import NewestFirstPagination, SessionView
from chatapp.api.tree_json import MOST_NAMED, NodeSerializer
from chatapp.extensions import MarkKind, SwitchUnderWay
from chatapp.models import POSITION_STEP, Message
from chatapp.outline import (
    Outline,
    OutlineBranch,
    OutlineNode,
    Place,
    outline_of,
    shown_messages,
    switch_of,
)

_PLACE = re.compile(r"([0-9]{1,18})-([0-9a-f]{32})", re.ASCII)


_KEY = {"type": "string", "format": "uuid"}
_SWITCH: dict[str, Any] = {
    "type": "object",
    "nullable": True,
    "description": "A switch to another branch that waits for a worker or is done now, or null.",
    "required": ["run", "status", "branch"],
    "properties": {
        "run": _KEY | {"description": "The run that it ends with."},
        "status": {"type": "string", "description": "`queued` or `running`."},
        "branch": _KEY | {"nullable": True, "description": "Where the session goes on then."},
    },
}


class NodePagination(NewestFirstPagination):
    """Pages of an outline's nodes; a cursor is the place of a node, so nodes may come meanwhile."""

    switch: SwitchUnderWay | None = None
    """What the page says beside its nodes: a switch of the session's that is under way."""
    _outline: Outline
    _start = 0
    _end = 0

    def get_paginated_response(self, data: Any) -> Response:
        """Return the page, and whether the session is about to go on in another branch."""
        found = super().get_paginated_response(data)
        switch = None if self.switch is None else asdict(self.switch)
        found.data = {**found.data, "switch_under_way": switch}
        return found

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the shape of a page."""
        page = super().get_paginated_response_schema(schema)
        page["required"].append("switch_under_way")
        page["properties"]["switch_under_way"] = _SWITCH
        return page

    def page_of(self, outline: Outline, request: Request) -> Sequence[OutlineNode]:
        """Return the nodes of the page asked for; 404 for a cursor that is no place."""
        self.request, self._outline = request, outline
        self.base_url = request.build_absolute_uri()
        size = self.get_page_size(request) or self.max_page_size
        cursor = self.decode_cursor(request)
        place = None if cursor is None else self._place(cursor)
        if place is not None and cursor is not None and cursor.reverse:
            self._end = outline.before(place)
            self._start = max(0, self._end - size)
        else:
            self._start = outline.behind(place)
            self._end = min(len(outline.nodes), self._start + size)
        return outline.nodes[self._start : self._end]

    def _place(self, cursor: Cursor) -> Place:
        found = _PLACE.fullmatch(str(cursor.position or ""))
        if found is None:
            raise NotFound(self.invalid_cursor_message)
        return int(found[1]), UUID(found[2])

    def get_next_link(self) -> str | None:
        """Return the address of the nodes behind the page, or nothing."""
        return self._link(self._end - 1) if self._end < len(self._outline.nodes) else None

    def get_previous_link(self) -> str | None:
        """Return the address of the nodes before the page, or nothing."""
        return self._link(self._start, reverse=True) if self._start else None

    def _link(self, number: int, *, reverse: bool = False) -> str:
        position, branch = self._outline.nodes[number].place if number >= 0 else (0, UUID(int=0))
        name: Any = f"{position}-{branch.hex}"
        link: str = self.encode_cursor(Cursor(offset=0, reverse=reverse, position=name))
        return link


class TreeView(SessionView):
    """The tree of a session, without the messages between its forks."""

    pagination_class = NodePagination

    @extend_schema(summary="Read a session's tree", responses=NodeSerializer(many=True))
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of nodes in the order of their positions: parents before their children."""
        session = self.get_session()
        outline = outline_of(session)
        pages = self.pagination_class()
        pages.switch = switch_of(session)
        nodes = pages.page_of(outline, request)
        above = [node.parent for node in nodes if node.parent is not None]
        messages = shown_messages([*nodes, *above])
        shown = [_node(node, outline, messages) for node in nodes]
        return pages.get_paginated_response(NodeSerializer(shown, many=True).data)


def _node(node: OutlineNode, outline: Outline, messages: Mapping[Place, Message]) -> dict[str, Any]:
    message: Any = messages.get(node.place)
    above = messages.get(node.parent.place) if node.parent is not None else None
    return {
        "message": message and message.pk,
        "role": message and message.role,
        "kind": message and message.kind,
        "preview": message.preview if message else "",
        "sequence_id": f"{node.position / POSITION_STEP:.6f}",
        "tokens_through": message.tokens_through if message else 0,
        "created_at": message and message.created_at,
        "branch": node.branch_id,
        "parent": above and above.pk,
        "is_root": node.parent is None,
        "is_head": bool(node.heads),
        "on_active_path": node.is_active,
        "heads": [_named(branch, outline) for branch in node.heads[:MOST_NAMED]],
        "head_count": len(node.heads),
        "forks": [_named(branch, outline) for branch in node.forks[:MOST_NAMED]],
        "fork_count": len(node.forks),
        "summaries": len(node.marks_of(MarkKind.SUMMARY)),
        "branch_summaries": len(node.marks_of(MarkKind.BRANCH_SUMMARY)),
    }


def _named(branch: OutlineBranch, outline: Outline) -> dict[str, Any]:
    return {"id": branch.id, "label": branch.label, "is_active": branch.id == outline.active}

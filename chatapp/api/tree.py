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
from chatapp.api.query import Kind, QueryParameter
from chatapp.api.tree_json import NodeSerializer
from chatapp.extensions import MarkKind, SwitchUnderWay
from chatapp.models import POSITION_STEP, Message, Session
from chatapp.outline import OutlineBranch, OutlineNode, Place, shown_messages, switch_of
from chatapp.outline_pages import MOST_NAMED, node_page

# Of the branches whose nodes stand at one position, before all and behind all.
_FIRST, _LAST = UUID(int=0), UUID(int=2**128 - 1)
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
    _next: Place | None = None
    _previous: Place | None = None

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

    def page_of(
        self, session: Session, branch: UUID | None, request: Request
    ) -> Sequence[OutlineNode]:
        """Return the nodes of the page asked for, of a session or of one branch of it.

        404 for a cursor that is no place.
        """
        size, place, is_reverse = self._asked(request)
        where: dict[str, Any] = (
            {} if place is None else {"before" if is_reverse else "after": place}
        )
        page = node_page(session, branch, size=size, **where)
        # Past the last node, or before the first, the way back is from where the cursor stood.
        position = 0 if place is None else place[0]
        if page.has_behind:
            self._next = page.nodes[-1].place if page.nodes else (max(0, position - 1), _LAST)
        if page.has_before:
            self._previous = page.nodes[0].place if page.nodes else (position + 1, _FIRST)
        return page.nodes

    def _asked(self, request: Request) -> tuple[int, Place | None, bool]:
        """Return the page's size, the place of its cursor, and whether it ends there."""
        self.request = request
        self.base_url = request.build_absolute_uri()
        cursor = self.decode_cursor(request)
        size = self.get_page_size(request) or self.max_page_size
        if cursor is None:
            return size, None, False
        return size, self._place(cursor), bool(cursor.reverse)

    def _place(self, cursor: Cursor) -> Place:
        found = _PLACE.fullmatch(str(cursor.position or ""))
        if found is None:
            raise NotFound(self.invalid_cursor_message)
        return int(found[1]), UUID(found[2])

    def get_next_link(self) -> str | None:
        """Return the address of the nodes behind the page, or nothing."""
        return self._link(self._next) if self._next is not None else None

    def get_previous_link(self) -> str | None:
        """Return the address of the nodes before the page, or nothing."""
        return self._link(self._previous, reverse=True) if self._previous is not None else None

    def _link(self, place: Place, *, reverse: bool = False) -> str:
        name: Any = f"{place[0]}-{place[1].hex}"
        link: str = self.encode_cursor(Cursor(offset=0, reverse=reverse, position=name))
        return link


class TreeView(SessionView):
    """The tree of a session, without the messages between its forks."""

    pagination_class = NodePagination
    query = (
        QueryParameter(
            name="branch",
            kind=Kind.ID,
            description="The nodes of this branch alone, whatever the size of the tree.",
        ),
    )

    @extend_schema(summary="Read a session's tree", responses=NodeSerializer(many=True))
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of nodes in the order of their positions: parents before their children."""
        session = self.get_session()
        pages = self.pagination_class()
        pages.switch = switch_of(session)
        branch = self.asked.get("branch")
        nodes = pages.page_of(session, branch, request)
        above = [node.parent for node in nodes if node.parent is not None]
        messages = shown_messages([*nodes, *above])
        shown = [_node(node, session.active_branch_id, messages) for node in nodes]
        return pages.get_paginated_response(NodeSerializer(shown, many=True).data)


def _node(
    node: OutlineNode, active: UUID | None, messages: Mapping[Place, Message]
) -> dict[str, Any]:
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
        "is_head": node.head_count > 0,
        "on_active_path": node.is_active,
        "heads": [_named(branch, active) for branch in node.heads[:MOST_NAMED]],
        "head_count": node.head_count,
        "forks": [_named(branch, active) for branch in node.forks[:MOST_NAMED]],
        "fork_count": node.fork_count,
        "summaries": len(node.marks_of(MarkKind.SUMMARY)),
        "branch_summaries": len(node.marks_of(MarkKind.BRANCH_SUMMARY)),
    }


def _named(branch: OutlineBranch, active: UUID | None) -> dict[str, Any]:
    return {"id": branch.id, "label": branch.label, "is_active": branch.id == active}

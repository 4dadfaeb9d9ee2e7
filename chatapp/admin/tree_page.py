"""The page of a session's tree: the picture, a table of its line ends, the forms of one branch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.timeline import TimelineOfSession
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import Cells, table_of, text_cell
from chatapp.admin.toolkit.extension import session_parts
from chatapp.admin.toolkit.page_forms import ShownForm
from chatapp.admin.toolkit.page_parts import Link, Table
from chatapp.admin.toolkit.permissions import (
    TEXTS_HIDDEN,
    may_see_texts,
    name_for,
    permitted_links,
)
from chatapp.admin.tree_drawing import TreePicture, draw_tree, node_text
from chatapp.admin.tree_layout import TreeLayout, TreeRow
from chatapp.models import Branch, Session
from chatapp.outline import Outline, OutlineBranch, OutlineNode, outline_of, shown_messages

TITLE = "Tree"
ENDS_OF_A_NODE = 5
FORMS = "forms"
_PLACE = re.compile(r"([0-9]{1,18})-([0-9a-f]{32})", re.ASCII)
_SKIP = re.compile(r"[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineEnd:
    """A line of the table: a branch and the node at which it ends."""

    branch: OutlineBranch
    node: OutlineNode


class TreeOfSession(TimelineOfSession):
    """Adds <page>/tree/ to a session's page; `?node=` begins at a node, `?branch=` chooses one."""

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the page."""
        view = self.admin_site.admin_view(self.tree_view)
        own = path("<path:object_id>/tree/", view, name="chatapp_session_tree")
        return [own, *super().get_urls()]

    def tree_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the tree, or what hangs under one of its nodes, and what can be done with it."""
        session = self.viewed_row(request, object_id)
        outline = outline_of(session)
        start = _node_asked_for(request, outline)
        layout = TreeLayout(outline, start=start, skip=_skip_asked_for(request))
        shown = _Shown(request, session, outline, layout.rows)
        chosen = _branch_asked_for(request, session)
        return TemplateResponse(
            request,
            "admin/chatapp/tree.html",
            {
                **self.admin_site.each_context(request),
                "title": TITLE,
                "opts": self.opts,
                "media": self.media,
                "session": session,
                "session_name": formatting.shortened(name_for(request, session)),
                "texts_hidden": "" if may_see_texts(request) else TEXTS_HIDDEN,
                "size": shown.size_words(),
                "drawing": shown.drawing(),
                "table": shown.table(),
                "whole": tree_url(session) if start is not None else "",
                "links": permitted_links(request, self._links_of(session)),
                "under_way": [link for part in session_parts() for link in part.under_way(session)],
                "chosen": chosen,
                "chosen_name": formatting.shortened(name_for(request, chosen)) if chosen else "",
                "chosen_in_use": chosen is not None and chosen.pk == session.active_branch_id,
                "forms": self._forms_of(request, chosen) if chosen is not None else [],
            },
        )

    def _links_of(self, session: Session) -> list[Link]:
        """Return the ways to the session, to all branches, and to what other apps have of it."""
        return [
            Link.to("Session", Session, session.pk),
            Link.to_list("All branches", Branch, session__id__exact=session.pk),
            *(link for part in session_parts() for link in part.links(session)),
        ]

    def _forms_of(self, request: HttpRequest, branch: Branch) -> Sequence[ShownForm]:
        """Return the branch's forms, which lead back to this page."""
        pages: Any = self.admin_site.get_model_admin(Branch)
        if not pages.has_view_permission(request, branch):
            return []
        shown: Sequence[ShownForm] = pages.forms_shown(request, branch)
        return [replace(form, url=f"{form.url}?{urlencode({'to': 'tree'})}") for form in shown]


class _Shown:
    """What a page shows of a tree: picture and table of the same rows."""

    def __init__(
        self, request: HttpRequest, session: Session, outline: Outline, rows: Sequence[TreeRow]
    ) -> None:
        self._session, self._outline, self._rows = session, outline, rows
        self._nodes = [row.node for row in rows if row.node is not None]
        texts = may_see_texts(request)
        self._view = TreePicture(
            messages=shown_messages(self._nodes),
            texts=texts,
            name=partial(_branch_name, texts=texts),
            fold_url=self._fold_url,
            in_use=outline.active,
        )

    def size_words(self) -> str:
        """Say how large the whole tree is."""
        branches = len(self._outline.branches)
        forks = sum(1 for node in self._outline.nodes if node.forks)
        return (
            f"{branches:,} {'branch' if branches == 1 else 'branches'}, "
            f"{formatting.plural(forks, 'fork')}"
        )

    def drawing(self) -> SafeString:
        """Return the picture."""
        label = f"The tree of the session: {self.size_words()}; the same ends stand in the table"
        return draw_tree(self._rows, self._view, label=label)

    def table(self) -> Table:
        """Return the table of the branches that end in the picture, in its order."""
        ends = [
            _LineEnd(branch=branch, node=node)
            for node in self._nodes
            for branch in node.heads[:ENDS_OF_A_NODE]
        ]
        summaries = self._summaries()
        cells: Cells = {
            "Branch": self._link,
            "": self._choose,
            "Forked at": lambda end: formatting.place(end.branch.fork_position),
            "Messages": lambda end: formatting.number(end.branch.message_count),
            "Tokens": lambda end: formatting.number(end.branch.token_total),
            "Summaries": lambda end: formatting.number(summaries[end.node.place]),
            "Last message": text_cell(lambda end: html.preview(node_text(end.node, self._view))),
        }
        return table_of("Line ends in the picture", ends, cells, empty="No branch ends here.")

    def _link(self, end: _LineEnd) -> SafeString:
        name = formatting.shortened(self._view.name(end.branch), 40)
        link = html.link(name, html.change_url(Branch, end.branch.id))
        if end.branch.id != self._outline.active:
            return link
        return format_html("{} {}", link, html.badge("in use", "good"))

    def _choose(self, end: _LineEnd) -> SafeString:
        url = f"{tree_url(self._session, branch=end.branch.id)}#{FORMS}"
        label = f"Choose {self._view.name(end.branch)}"
        return format_html('<a href="{}" aria-label="{}">choose</a>', url, label)

    def _summaries(self) -> Mapping[Any, int]:
        """Return how many summaries stand on the way from the root to each node."""
        sums: dict[Any, int] = {}
        for node in self._outline.nodes:
            above = 0 if node.parent is None else sums[node.parent.place]
            sums[node.place] = above + len(node.marks)
        return sums

    def _fold_url(self, row: TreeRow) -> str:
        query: dict[str, Any] = {}
        if row.fold is not None and row.fold.node is not None:
            position, branch = row.fold.node.place
            query["node"] = f"{position}-{branch.hex}"
        if row.fold is not None and row.fold.skip:
            query["skip"] = row.fold.skip
        return tree_url(self._session, **query)


def tree_url(session: Any, **query: Any) -> str:
    """Return the address of a session's tree; takes a session or its id."""
    url = html.keyed_url("admin:chatapp_session_tree", getattr(session, "pk", session))
    return f"{url}?{urlencode(query)}" if query else url


def _branch_name(branch: OutlineBranch, *, texts: bool) -> str:
    if branch.label and texts:
        return branch.label
    kind = Branch.Kind(branch.kind).label if texts else "Branch"
    return f"{kind} {formatting.short_id(branch.id)}"


def _node_asked_for(request: HttpRequest, outline: Outline) -> OutlineNode | None:
    found = _PLACE.fullmatch(request.GET.get("node", ""))
    return None if found is None else outline.node_at((int(found[1]), UUID(found[2])))


def _skip_asked_for(request: HttpRequest) -> int:
    asked = request.GET.get("skip", "")
    return int(asked) if _SKIP.fullmatch(asked) else 0


def _branch_asked_for(request: HttpRequest, session: Session) -> Branch | None:
    """Return the branch whose forms are shown: the one asked for, else the one in use."""
    try:
        key = UUID(request.GET.get("branch", ""))
    except ValueError:
        return session.active_branch
    rows = Branch.objects.select_related("session")
    return rows.filter(pk=key, session=session).first()

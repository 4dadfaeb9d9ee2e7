"""Needs a look: the list, first on the front page and on a page of its own, and what is done there.

Each thing has what helps it (a button), snooze and done. Sentences hold ids alone; a session's
title and owner stand on the page, for whoever may see them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import DateTimeField, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.history import write_entry
from chatapp.admin.toolkit.permissions import holds, may_run, name_for
from chatapp.models import Branch, Session
from compaction.admin.actions import REFUSALS, may_view, queued
from compaction.admin.forms import compact, redo
from compaction.admin.restoring import may_restore
from compaction.attention.kinds import BRANCH, KIND_NAMES, KINDS, LookItem, LookKind
from compaction.attention.listing import MOST_COUNTED, LookCursor, LookList, needs_look
from compaction.attention.marks import bring_back, find_item, mark_done, set_aside, snooze
from compaction.errors import CompactionError
from compaction.models import CompactionRun, LookMark
from compaction.runs.holding import lift_hold
from compaction.runs.lifecycle import retry_run
from compaction.runs.sweep import restart_branch

LOOK, LOOK_DO = "compaction_needs_look", "compaction_needs_look_do"
FRONT_ITEMS = 6
MARKS_SHOWN = 100
TITLE = "Needs a look"
_LOCAL = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAct:
    """What helps a kind of thing, and who `may`; `do` raises one of actions.REFUSALS."""

    label: str
    do: Callable[[HttpRequest, LookItem], SafeString | str]
    may: Callable[[HttpRequest], bool] = may_run


def _compact(request: HttpRequest, item: LookItem) -> SafeString:
    return compact(request, Session.objects.get(pk=item.session))


def _summarise_again(request: HttpRequest, item: LookItem) -> SafeString:
    return redo(request, Session.objects.get(pk=item.session))


def _run_again(request: HttpRequest, item: LookItem) -> SafeString:
    rows = CompactionRun.objects.select_related("session", "branch", "profile", "replaces")
    return queued(retry_run(rows.get(pk=item.row), requested_by=request.user))


def _restart(request: HttpRequest, item: LookItem) -> SafeString | str:
    runs = restart_branch(UUID(item.subject))
    told = f"The branch is free; {formatting.plural(runs, 'run')} started again."
    return _with_session(request, _branch_of(item), told)


def _lift(request: HttpRequest, item: LookItem) -> SafeString | str:
    branch = _branch_of(item)
    lift_hold(branch.session, by=request.user, branch=branch)
    told = "The hold is lifted: the profile's rules count again."
    return _with_session(request, branch, told)


def _branch_of(item: LookItem) -> Branch:
    return Branch.objects.select_related("session").get(pk=item.subject)


def _with_session(request: HttpRequest, branch: Branch, told: str) -> SafeString | str:
    """Return a sentence with the way back: what was done is off the list, and told of there."""
    if not may_view(request, Session):
        return told
    named = f"Session {formatting.short_id(branch.session_id)}"
    return format_html("{} {}", told, html.row_link(branch.session, named))


ACTS: Mapping[str, LookAct] = {
    "compact": LookAct(label="Compact now", do=_compact),
    "run_again": LookAct(label="Run again", do=_run_again),
    "summarise_again": LookAct(label="Re-summarise", do=_summarise_again),
    "restart": LookAct(label="Restart", do=_restart),
    "lift": LookAct(label="Lift the hold", do=_lift, may=may_restore),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRow:
    """One thing as the templates draw it."""

    item: LookItem
    url: str
    since: str
    acts: Sequence[tuple[str, str]]
    about: str = ""


def kinds_for(request: HttpRequest) -> list[LookKind]:
    """Return the kinds whose rows the operator may see."""
    return [kind for kind in KINDS if may_view(request, kind.page)]


def may_mark(request: HttpRequest) -> bool:
    """Whether the operator may say that something is done: permission `change look mark`."""
    return holds(request, "compaction.change_lookmark")


def look_context(request: HttpRequest, found: LookList, *, to: str) -> dict[str, Any]:
    """Return what the templates of the list are given; `to` is where its buttons lead back."""
    now = timezone.now()
    may_do = [(name, act) for name, act in ACTS.items() if act.may(request)]
    pages = {item.kind.event_page for item in found.items}
    seen = {page for page in pages if page is not None and may_view(request, page)}
    titles = _titles(request, found.items) if to == "page" else {}
    tomorrow = timezone.localtime(now + timedelta(days=1))
    return {
        "look_rows": [
            LookRow(
                item=item,
                url=_page_of(item, seen),
                since=formatting.span_words(max(now - item.at, timedelta())),
                acts=[(name, act.label) for name, act in may_do if name in item.kind.acts],
                about=titles.get(item.session, ""),
            )
            for item in found.items
        ],
        "look_total": _counted(found.total, any(n > MOST_COUNTED for n in found.counts.values())),
        "look_more": max(found.total - len(found.items), 0),
        "look_url": reverse(f"admin:{LOOK}"),
        "look_do_url": reverse(f"admin:{LOOK_DO}"),
        "look_may_mark": may_mark(request),
        "look_to": to,
        "look_tomorrow": tomorrow.strftime(_LOCAL),
    }


def _page_of(item: LookItem, seen: Collection[type[Model]]) -> str:
    """Return where a thing leads: to the answer or turn it is about, if those are seen."""
    event_page = item.kind.event_page
    if event_page is not None and event_page in seen:
        return html.change_url(event_page, item.event_row)
    return html.change_url(item.kind.page, item.row)


def _counted(count: int, is_more: bool) -> str:
    return f"{count - 1:,}+" if is_more else f"{count:,}"


def _titles(request: HttpRequest, items: Sequence[LookItem]) -> dict[str, str]:
    """Return what the sessions of a page are called, and whose they are: one query."""
    keys = {item.session for item in items if item.session}
    if not keys or not may_view(request, Session):
        return {}
    rows = Session.objects.filter(pk__in=keys).select_related("owner").only("title", "owner")
    return {
        str(row.pk): f"{formatting.shortened(name_for(request, row))} · {row.owner}" for row in rows
    }


def front_context(request: HttpRequest) -> dict[str, Any]:
    """Return the beginning of the list for the front page; nothing where no kind may be seen."""
    kinds = [kind for kind in kinds_for(request) if not kind.is_figure]
    if not kinds:
        return {}
    return look_context(request, needs_look(kinds, most=FRONT_ITEMS), to="front")


# --- the page -------------------------------------------------------------------------------------


def look_view(request: HttpRequest) -> HttpResponse:
    """Return a page of the list, of one kind where the address names one, or what is set aside."""
    kinds = kinds_for(request)
    if not kinds:
        raise PermissionDenied
    chosen = request.GET.get("kind", "")
    named = [kind for kind in kinds if kind.name == chosen]
    shown: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": TITLE,
        "is_nav_sidebar_enabled": False,
        "kinds": kinds,
        "chosen": named[0] if named else None,
        "is_aside": "aside" in request.GET,
    }
    if shown["is_aside"]:
        shown |= look_context(request, LookList(items=(), next_cursor=None, counts={}), to="aside")
        shown["marks"] = [_mark_row(mark) for mark in _marks_for(kinds)]
    else:
        behind = LookCursor.read(request.GET.get("behind", ""))
        found = needs_look(named or kinds, behind=behind)
        shown |= look_context(request, found, to="page")
        shown["counts"] = [
            (kind, _counted(count, count > MOST_COUNTED))
            for kind in kinds
            if (count := found.counts.get(kind.name, 0))
        ]
        shown["is_first"] = behind is None
        if found.next_cursor is not None:
            asked = {"kind": named[0].name} if named else {}
            shown["next_url"] = f"?{urlencode(asked | {'behind': str(found.next_cursor)})}"
    return TemplateResponse(request, "admin/compaction/needs_look.html", shown)


def _marks_for(kinds: Sequence[LookKind]) -> list[LookMark]:
    return list(set_aside().filter(kind__in=[kind.name for kind in kinds])[:MARKS_SHOWN])


def _mark_row(mark: LookMark) -> dict[str, Any]:
    """Return a mark as the page shows it: what, by whom, until when."""
    kind = KIND_NAMES[mark.kind]
    by_branch = kind.marked == BRANCH
    until = "until it happens again"
    if mark.done_at is None:
        until = f"until {formatting.clock(mark.hidden_until)}"
    return {
        "mark": mark,
        "label": kind.label,
        "named": f"branch {formatting.short_id(mark.branch_id)}" if by_branch else mark.model,
        "words": f"{'Done' if mark.done_at else 'Snoozed'} {until}",
        "who": str(mark.marked_by or "somebody who is gone"),
        "when": formatting.when(mark.marked_at),
    }


# --- what is done ---------------------------------------------------------------------------------


def do_view(request: HttpRequest) -> HttpResponse:
    """Do what a button of the list asks for, say so, and go back to where it stands."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    act, kind = request.POST.get("act", ""), request.POST.get("kind", "")
    if kind not in {each.name for each in kinds_for(request)}:
        raise PermissionDenied
    allowed = ACTS[act].may(request) if act in ACTS else may_mark(request)
    if not allowed:
        raise PermissionDenied
    try:
        told = _done(request, act, kind)
        messages.success(request, told)
    except REFUSALS as refusal:
        messages.error(request, str(refusal))
    to = request.POST.get("to", "")
    page = reverse("admin:index") if to == "front" else reverse(f"admin:{LOOK}")
    return HttpResponseRedirect(f"{page}?aside=1" if to == "aside" else page)


def _done(request: HttpRequest, act: str, kind: str) -> SafeString | str:
    """Do one act and return the sentence for it; raises one of REFUSALS."""
    if act == "back":
        mark = LookMark.objects.filter(pk=_number(request.POST.get("mark", "")), kind=kind).first()
        if mark is None:
            raise CompactionError("It is not set aside any more.")
        bring_back(mark, by=request.user)
        write_entry(request, mark, CHANGE, "Back in the list.")
        return "If it is still so, it is in the list again."
    item = find_item(kind, request.POST.get("subject", ""))
    if act in item.kind.acts:
        told = ACTS[act].do(request, item)
        if act == "compact":
            # What helps was done; should it happen again, it is back.
            mark_done(item, by=request.user)
        return told
    if act == "done":
        mark, said = mark_done(item, by=request.user), "Done: it is back when it happens again."
    elif act == "snooze":
        until = _moment(request.POST.get("until", ""))
        mark = snooze(item, until=until, by=request.user)
        said = f"Snoozed until {formatting.clock(until)}."
    else:
        raise CompactionError("There is no such act.")
    write_entry(request, mark, CHANGE, said)
    return said


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _moment(text: str) -> datetime:
    """Return the time that a form names, in the pages' time zone; CompactionError for none."""
    try:
        moment: datetime = DateTimeField(input_formats=[_LOCAL]).clean(text)
    except ValidationError as wrong:
        raise CompactionError("Name a time until which it may wait.") from wrong
    return moment

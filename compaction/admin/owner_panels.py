"""What compaction adds to an owner's page: what summarising cost, and the budget of the hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Link, Panel
from compaction.admin.actions import may_view
from compaction.limits.budget import Spent, owner_limits, spent_by_owner
from compaction.models import CompactionRun, Memory, MemoryRun, SessionSummary

DAYS = 30
UNITS = {"calls": "Model calls", "tokens": "Tokens"}


def cost_panel(request: HttpRequest, owner: Any) -> Panel | None:
    """Return what summarising took: of the last days, and ever; nothing without the permission."""
    if not may_view(request, CompactionRun):
        return None
    since = timezone.now() - timedelta(days=DAYS)
    recent = Q(created_at__gte=since)
    of_owner = CompactionRun.objects.filter(session__owner=owner)
    runs = of_owner.aggregate(**_sums(recent))
    memories = MemoryRun.objects.filter(owner=owner).aggregate(**_sums(recent))
    active = SessionSummary.objects.filter(
        session__owner=owner, status=SessionSummary.Status.ACTIVE
    ).count()
    named = (
        ("Runs", "runs", formatting.number),
        ("Calls of summarisers", "calls", formatting.number),
        ("Tokens in and out of language models", "tokens", formatting.number),
        ("Cost", "cost", formatting.money),
    )
    rows = [
        (name, *(show(_both(runs, memories, f"{when}_{key}")) for when in ("recent", "all")))
        for name, key, show in named
    ]
    links = [
        Link.to_list("Memories", Memory, owner__id__exact=owner.pk),
        Link.to_list("Memory runs", MemoryRun, owner__id__exact=owner.pk),
    ]
    body = render_to_string(
        "admin/compaction/owner_cost.html",
        {"rows": rows, "days": DAYS, "active": f"{active:,}", "links": links},
    )
    return Panel(title="Cost of summarising", body=body)


def _sums(recent: Q) -> dict[str, Any]:
    columns = {"calls": "model_calls", "tokens": "spent_tokens", "cost": "cost"}
    sums: dict[str, Any] = {"all_runs": Count("pk"), "recent_runs": Count("pk", filter=recent)}
    for name, column in columns.items():
        sums[f"all_{name}"] = Sum(column)
        sums[f"recent_{name}"] = Sum(column, filter=recent)
    return sums


def _both(runs: dict[str, Any], memories: dict[str, Any], name: str) -> Any:
    return (runs[name] or 0) + (memories[name] or 0)


def budget_panel(request: HttpRequest, owner: Any) -> Panel | None:
    """Return how much of the hour's budget is spent; nothing without the permission."""
    if not may_view(request, CompactionRun):
        return None
    limits, spent = owner_limits(), spent_by_owner(owner.pk)
    lines = [_line(unit, limits, spent) for unit in UNITS]
    body = render_to_string(
        "admin/compaction/owner_budget.html",
        {"lines": lines, "is_limited": any(limits.values())},
    )
    return Panel(title="Budget of this hour", body=body)


def _line(unit: str, limits: dict[str, int], spent: Spent) -> dict[str, Any]:
    used, limit = int(getattr(spent, unit)), limits[unit]
    words = f"{used:,} of {limit:,}" if limit else f"{used:,}, no limit"
    return {
        "name": UNITS[unit],
        "words": words,
        "bar": html.bar(used, limit, words) if limit else "",
        "is_over": bool(limit) and used >= limit,
    }

"""The page that compares profiles: what each would have made of conversations.

A worker does it, and the page tells how far it is. With a model it first says the price; another
press goes on. Whoever may not see texts may not replay them either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from chatapp import formatting
from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.page_parts import Table
from chatapp.admin.toolkit.permissions import holds, may_run, require_texts
from chatapp.llm.registry import all_models
from chatapp.models import Session
from compaction.admin.comparison_plot import lines_of, sent_plot, sent_table
from compaction.comparison import jobs
from compaction.comparison.candidates import EMBEDDED, MOST_PROFILES, profile_names
from compaction.comparison.words import FIGURES, notes_of, price_of
from compaction.engine.profile import PRESETS

COMPARE = "compaction_compare_profiles"
MOST_SESSIONS = 20
EMBEDDED_WORDS = "chosen sentences, no model"
_WORD = re.compile(r"[^\s,]+")


class ComparisonForm(forms.Form):
    """Which conversations are replayed, under which profiles, and who summarises."""

    sessions = forms.CharField(
        label="Sessions",
        help_text="Ids of sessions, with spaces or lines between; a session's page has its own, "
        "and a way to here.",
        widget=forms.Textarea(attrs={"rows": 3, "cols": 40}),
        max_length=2_000,
    )
    profiles = forms.MultipleChoiceField(
        label="Profiles", widget=forms.CheckboxSelectMultiple, choices=()
    )
    model = forms.ChoiceField(
        label="Who summarises",
        choices=(),
        help_text="Chosen sentences cost nothing. A model is priced before it is asked.",
    )

    def __init__(self, *args: Any, may_ask: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["profiles"].choices = [(name, name) for name in profile_names()]  # type: ignore[attr-defined]
        chosen = [(EMBEDDED, EMBEDDED_WORDS)]
        if may_ask:
            served = (one for one in all_models().values() if not one.is_embedded)
            chosen += [(one.alias, f"{one.alias} ({one.name})") for one in served]
        self.fields["model"].choices = chosen  # type: ignore[attr-defined]

    def clean_sessions(self) -> list[str]:
        """Return the ids of the sessions; each has to exist."""
        words = list(dict.fromkeys(_WORD.findall(self.cleaned_data["sessions"])))
        if len(words) > MOST_SESSIONS:
            raise forms.ValidationError(
                f"{len(words)} sessions were named; {MOST_SESSIONS} can be compared at once."
            )
        key = Session._meta.pk
        ids = []
        for word in words:
            try:
                ids.append(key.to_python(word))
            except forms.ValidationError as error:
                raise forms.ValidationError(f"“{word}” is no session's id.") from error
        known = set(Session.objects.filter(pk__in=ids).values_list("pk", flat=True))
        missing = next((one for one in ids if one not in known), None)
        if missing is not None:
            raise forms.ValidationError(f"There is no session {missing}.")
        return [str(one) for one in dict.fromkeys(ids)]

    def clean_profiles(self) -> list[str]:
        """Return the names of the profiles, not too many."""
        names: list[str] = self.cleaned_data["profiles"]
        if len(names) > MOST_PROFILES:
            raise forms.ValidationError(f"{MOST_PROFILES} profiles can be compared at once.")
        return names


def compare_view(request: HttpRequest) -> HttpResponse:
    """Show the form, how far a comparison is, or what came of it; POST begins, goes on, cancels."""
    require_texts(request)
    if not holds(request, "chatapp.view_session"):
        raise PermissionDenied
    if request.method == "POST":
        return _posted(request)
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "POST"])
    job = _job_of(request, request.GET.get("job", ""))
    if job is not None:
        return _job_page(request, job)
    if request.GET.get("job"):
        messages.warning(
            request, "This comparison is gone: results are kept for 15 minutes. Ask for it again."
        )
    chosen = list(dict.fromkeys([*PRESETS, request.GET.get("profile", "")]))
    first = {"sessions": request.GET.get("session", "")[:100], "profiles": chosen}
    form = ComparisonForm(initial=first | {"model": EMBEDDED}, may_ask=may_run(request))
    return _page(request, {"form": form})


def compare_url(*, session: Session | None = None, profile: str = "") -> str:
    """Return the address of the form, filled in for a session, or with a profile beside presets."""
    asked = {"session": str(session.pk)} if session is not None else {"profile": profile}
    return f"{reverse(f'admin:{COMPARE}')}?{urlencode(asked)}"


def _posted(request: HttpRequest) -> HttpResponse:
    job = _job_of(request, request.POST.get("job", ""))
    if job is not None and "cancel" in request.POST:
        jobs.cancel(job)
        return _back_to(job)
    if job is not None and "go" in request.POST:
        if not may_run(request):
            raise PermissionDenied
        return _back_to(_begun(request, job.sessions, job.profiles, job.model, is_confirmed=True))
    form = ComparisonForm(request.POST, may_ask=may_run(request))
    if not form.is_valid():
        return _page(request, {"form": form})
    asked = form.cleaned_data
    return _back_to(_begun(request, asked["sessions"], asked["profiles"], asked["model"]))


def _begun(
    request: HttpRequest,
    sessions: Sequence[str],
    profiles: Sequence[str],
    model: str,
    *,
    is_confirmed: bool = False,
) -> jobs.ComparisonJob:
    return jobs.begin(
        user=_user_of(request),
        sessions=sessions,
        profiles=profiles,
        model=model,
        is_confirmed=is_confirmed,
    )


def _job_of(request: HttpRequest, key: str) -> jobs.ComparisonJob | None:
    if not re.fullmatch(r"[0-9a-f]{32}", key):
        return None
    return jobs.find(key, user=_user_of(request))


def _user_of(request: HttpRequest) -> int:
    return int(request.user.pk or 0)


def _back_to(job: jobs.ComparisonJob) -> HttpResponse:
    address = reverse(f"admin:{COMPARE}")
    return HttpResponseRedirect(f"{address}?{urlencode({'job': job.key})}")


def _job_page(request: HttpRequest, job: jobs.ComparisonJob) -> HttpResponse:
    shown: dict[str, Any] = {"job": job, "url": reverse(f"admin:{COMPARE}")}
    shown["summariser"] = EMBEDDED_WORDS if job.model == EMBEDDED else job.model
    shown["sessions"] = [
        html.link(formatting.short_id(one), html.change_url(Session, one)) for one in job.sessions
    ]
    if job.result is not None:
        shown |= _result(job.result)
        is_priced = job.result["is_estimate"] and not job.is_confirmed
        shown["price"] = price_of(job.result) if is_priced else ""
        shown["may_go_on"] = is_priced and may_run(request)
    elif not job.is_over:
        shown["said"] = _said(job)
    return _page(request, shown)


def _said(job: jobs.ComparisonJob) -> str:
    if job.status == jobs.QUEUED:
        return "Waiting for a worker of the queue (manage.py qcluster)."
    if not job.total:
        return "Reading the conversations."
    return (
        f"{job.done:,} of {formatting.plural(job.total, 'message')}, now with the profile {job.at}."
    )


def _result(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template draws of a result."""
    rows = found["profiles"]
    lines = lines_of(rows)
    turns = max((row["turns"] for row in rows), default=0)
    return {
        "figures": Table(
            title="What each profile would have made of it",
            columns=("", *(row["profile"] for row in rows)),
            rows=[(words, *(shown(row) for row in rows)) for words, shown in FIGURES.items()],
        ),
        "plot": sent_plot(lines, turns=turns) if lines else "",
        "lines": lines,
        "table": sent_table(lines, turns=turns),
        "problems": [(row["profile"], sentence) for row in rows for sentence in row["problems"]]
        + [(one["session"], one["problem"]) for one in found["sessions"] if one["problem"]],
        "notes": notes_of(found),
        "messages_count": formatting.plural(found["messages"], "message"),
    }


def _page(request: HttpRequest, shown: Mapping[str, Any]) -> HttpResponse:
    context = {
        **admin.site.each_context(request),
        "title": "Compare profiles",
        "kept_minutes": jobs.KEPT_SECONDS // 60,
        **shown,
    }
    return TemplateResponse(request, "admin/compaction/compare_profiles.html", context)

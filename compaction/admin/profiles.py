"""Profiles: versions that are saved, never changed; where each is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import column
from chatapp.admin.toolkit.lists import choices_titled
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_forms import ShownForm
from chatapp.admin.toolkit.page_parts import Link, Table
from chatapp.admin.toolkit.permissions import holds, link_for
from compaction.admin.actions import for_each
from compaction.admin.comparison import compare_url
from compaction.admin.lists import run_table
from compaction.admin.profile_actions import (
    HELP,
    PROFILE_FORMS,
    live_answer,
    may_change,
    outcome_of,
    stored_warnings,
    value_table,
)
from compaction.admin.profile_form import HEAD, PASTED, ProfileForm
from compaction.admin.profile_values import comparison, state_words, version_table
from compaction.engine.profile import parameter_groups
from compaction.errors import CompactionError, StaleProfileError
from compaction.models import CompactionProfile, CompactionRun, CompactionState
from compaction.profiles import make_default, save_profile

TEMPLATES = "admin/compaction/compactionprofile"
SENTENCE = (
    "Saving stores a new version and leaves this one as it is: runs and summaries keep "
    "pointing at the parameters they were made with. A field without a value is as the preset."
)
OLD_SENTENCE = "An old version can only be read, or restored as a new one."
UNCHANGED_WORDS = "Nothing was changed: {} stays as it is, no new version was made."
SAVED_WORDS = "Saved as {}; the version before it stays as it was."

SESSIONS_SHOWN = 20
RUNS_SHOWN = 10


@admin.register(CompactionProfile)
class CompactionProfileAdmin(WideList):
    """A named set of parameters; the current version can be changed, which makes the next one."""

    form = ProfileForm
    change_form_template = f"{TEMPLATES}/change_form.html"
    page_forms = PROFILE_FORMS
    list_display = (
        "label",
        "version",
        "preset",
        "is_default",
        "is_current",
        "description",
        "created_at",
    )
    list_filter = ("is_current", "is_default", ("base", choices_titled("preset")))
    list_only = ("name",)
    ordering = ("name", "-version")
    sortable_by = ()
    search_help_text = "A part of the name or the description."
    actions = ("make_default",)

    class Media:
        css = {"all": ["compaction/profile.css"]}
        js = [forms.Script("compaction/profile.js", type="module")]

    # --- what may be done -------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may make new profiles."""
        return holds(request, "compaction.add_compactionprofile")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the operator may make a next version; only of the current one.

        What is sent for a version that was the current one until now reaches the form, which says
        what happened and keeps what was typed.
        """
        return may_change(request) and (obj is None or obj.is_current or request.method == "POST")

    @admin.action(description="Make default", permissions=["change"])
    def make_default(self, request: HttpRequest, queryset: QuerySet[CompactionProfile]) -> None:
        """Make the selected profile the one for sessions that name none."""
        rows = self.chosen(request, queryset)
        if len(rows) > 1:
            self.message_user(request, "Select one profile: there is one default.", level="error")
            return

        def choose(row: CompactionProfile) -> SafeString:
            if not row.is_current:
                raise CompactionError("Only the current version of a profile can be the default.")
            made = make_default(row.name)
            return format_html("{} is the default now.", html.row_link(made))

        for_each(request, rows, choose)

    # --- list -------------------------------------------------------------------------------------

    label = column("Profile", str)
    preset = column("Preset", "base")

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search name and description."""
        return Q(name__icontains=wanted) | Q(description__icontains=wanted)

    # --- form -------------------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of the form by group; of a version to read only what it is."""
        state = ["state", "created_at"]
        if obj is not None and not self.has_change_permission(request, obj):
            names = ["name", "version", "preset", "description", *state]
            note = "" if obj.is_current else OLD_SENTENCE
            return [(None, {"fields": names, "description": note})]
        groups: list[Any] = [
            (title, {"fields": list(names), "classes": ["profile-group"]})
            for title, names in parameter_groups().items()
        ]
        groups.append(("From another system", {"fields": [PASTED], "classes": ["profile-group"]}))
        if obj is None:
            return [(None, {"fields": list(HEAD)}), *groups]
        names = ["name", "version", "base", "description"]
        return [
            (None, {"fields": names, "description": SENTENCE}),
            *groups,
            ("State", {"fields": state}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what a form shows but does not take."""
        if obj is None:
            return ()
        return ("name", "version", "preset", "state", "created_at")

    state = column("State", state_words)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Save, or show the form again where another version came in between check and save."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except StaleProfileError:
            # Nothing was stored. The form's own check sees the other version now and says so.
            return super().changeform_view(request, object_id, form_url, extra_context)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Store a new version; `obj` becomes that row, so that log and messages name it."""
        saved = save_profile(
            name=obj.name,
            base=obj.base,
            parameters=obj.parameters,
            description=obj.description,
            opened=obj.version if change else 0,
        )
        request._profile_unchanged = saved.pk == obj.pk  # type: ignore[attr-defined]
        obj.__dict__.update(saved.__dict__)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log what was saved; nothing was where nothing changed."""
        if getattr(request, "_profile_unchanged", False):
            return None
        return super().log_change(request, obj, message)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """After "save and continue", show the new version; say so where none was made."""
        if getattr(request, "_profile_unchanged", False):
            sentence, level = UNCHANGED_WORDS, messages.INFO
        else:
            sentence, level = SAVED_WORDS, messages.SUCCESS
        # Not Django's own sentence: its link leads to the version that was opened.
        self.message_user(request, format_html(sentence, html.row_link(obj)), level=level)
        if "_continue" in request.POST:
            return HttpResponseRedirect(html.change_url(CompactionProfile, obj.pk))
        return self.response_post_save_change(request, obj)

    # --- live validation --------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses that check a form without saving it."""
        view = self.admin_site.admin_view(self.validate_view)
        name = "compaction_compactionprofile_validate"
        return [
            path("add/validate/", view, name=f"{name}_new"),
            path("<int:pk>/validate/", view, name=name),
            *super().get_urls(),
        ]

    def validate_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """Return what is wrong with a form as it stands, and what saving it would come to."""
        obj = None if pk is None else self.get_object(request, str(pk))
        if pk is not None and obj is None:
            raise Http404
        allowed = may_change(request) if obj else self.has_add_permission(request)
        if not allowed:
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponse(status=405, headers={"Allow": "POST"})
        form = self.get_form(request, obj, change=obj is not None)(request.POST, instance=obj)
        outcome = outcome_of(form, stored_row(obj))
        html = render_to_string(f"{TEMPLATES}/outcome.html", {"outcome": outcome, "live": True})
        return JsonResponse(live_answer(form, outcome, html))

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: CompactionProfile) -> list[Link]:
        """Return the ways to the runs of this version, and to the page that compares profiles."""
        return [
            Link.to_list("Runs", CompactionRun, profile__id__exact=obj.pk),
            Link(label="Compare profiles", url=compare_url(profile=obj.name), needs_texts=True),
        ]

    def forms_shown(self, request: HttpRequest, obj: CompactionProfile) -> list[ShownForm]:
        """Return the forms, each with a sentence about what it changes."""
        shown = super().forms_shown(request, obj)
        return [replace(each, help=HELP[each.name](obj)) for each in shown]

    def do_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do what a form asks for, log it and go to the version that came of it."""
        response = super().do_view(request, object_id, name)
        made = getattr(request, "_profile_made", None)
        if made is None:
            return response
        self.log_change(request, made, f"{self.page_forms[name].label}.")
        return HttpResponseRedirect(html.change_url(CompactionProfile, made.pk))

    def tables_for(self, request: HttpRequest, obj: CompactionProfile) -> list[Table]:
        """Return the values of a version to read, where it is used, and the other versions."""
        stored = stored_row(obj) or obj
        values = [] if self.has_change_permission(request, obj) else [read_table(stored)]
        return [*values, use_table(request, stored), newest_runs(stored), version_table(stored)]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Add what saving would come to, and the comparison with another version."""
        stored = stored_row(obj)
        if self.has_change_permission(request, obj) if stored else add:
            name = "admin:compaction_compactionprofile_validate"
            context["validate_url"] = (
                reverse(name, args=[stored.pk]) if stored else reverse(f"{name}_new")
            )
            # The form of the next profile would say nothing of the one just saved.
            context["show_save_and_add_another"] = False
            context["outcome"] = outcome_of(context["adminform"].form, stored)
        if stored:
            context["comparison"] = comparison(request, stored)
            context["warnings"] = stored_warnings(stored)
        return super().render_change_form(request, context, add, change, form_url, obj)


def stored_row(obj: CompactionProfile | None) -> CompactionProfile | None:
    """Return a version as it is stored: a form that was sent has changed the row it was given."""
    return None if obj is None else CompactionProfile.objects.get(pk=obj.pk)


def read_table(stored: CompactionProfile) -> Table:
    """Return the values of a version that is only looked at."""
    return value_table(stored, "Values in force")


def use_table(request: HttpRequest, profile: CompactionProfile) -> Table:
    """Return the sessions whose branches name the profile, and whether all others use it."""
    named = CompactionState.objects.filter(profile=profile.name).exclude(profile="")
    count = named.count()
    rows = list(
        named.order_by("pk")
        .select_related("branch__session__owner")
        .only(
            "branch__kind",
            "branch__label",
            "branch__session__title",
            "branch__session__owner__username",
        )[:SESSIONS_SHOWN]
    )
    more = None
    if count > len(rows):
        more = Link.to_list(
            "All branches that name it", CompactionState, profile__exact=profile.name
        )
    return Table(
        title="Where it is used",
        columns=("Session", "Owner", "Branch"),
        note=f"{default_words(profile)} Branches that name it: {count:,}."
        + (f" The first {len(rows)}:" if more else ""),
        rows=[
            (
                link_for(request, state.branch.session),
                state.branch.session.owner.get_username(),
                link_for(request, state.branch),
            )
            for state in rows
        ],
        empty="No session names it.",
        more=more,
    )


def default_words(profile: CompactionProfile) -> str:
    """Return who uses the profile without naming it."""
    if not profile.is_current:
        return "Sessions use the current version; this one only explains older runs."
    if profile.is_default:
        return "It is the default: every session that names no profile uses it."
    return "It is not the default: only sessions that name it use it."


def newest_runs(profile: CompactionProfile) -> Table:
    """Return the newest runs of exactly this version."""
    runs = CompactionRun.objects.filter(profile=profile).order_by("-created_at", "-id")
    url = html.list_url(CompactionRun, profile__id__exact=profile.pk)
    return run_table(
        f"Newest runs of version {profile.version}",
        runs[:RUNS_SHOWN],
        more=Link(label="All runs of this version", url=url),
    )

"""Profiles: the one thing that is edited here, and even that by adding versions."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chatapp.admin import cells
from chatapp.admin.base import ReadOnlyAdmin
from chatapp.admin.parts import Link, Table
from compaction.admin.acting import for_each
from compaction.engine.profile import Profile, ProfileError, parameter_types
from compaction.models import CompactionProfile, CompactionRun
from compaction.services.errors import CompactionError
from compaction.services.profiles import make_default, save_profile

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[CompactionProfile]
else:
    _ModelForm = forms.ModelForm

SENTENCE = (
    "Saving stores a new version and leaves this one as it is: runs and summaries keep "
    "pointing at the parameters they were made with."
)
VERSIONS_SHOWN = 20


class Indented(json.JSONEncoder):
    """JSON over several lines, for the form's text box."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "indent": 2})


class ProfileForm(_ModelForm):
    """Name, preset and parameters; the model's clean() has a sentence for every wrong value."""

    parameters = forms.JSONField(
        required=False,
        encoder=Indented,
        widget=forms.Textarea(
            attrs={"class": "vLargeTextField", "rows": 14, "spellcheck": "false"}
        ),
        help_text="What differs from the preset, as a JSON object. All parameters: see below.",
    )

    class Meta:
        model = CompactionProfile
        fields = ("name", "base", "parameters", "description")

    def clean_name(self) -> str:
        """Refuse a name that exists: its page makes new versions."""
        name = str(self.cleaned_data["name"])
        if CompactionProfile.objects.filter(name=name).exists():
            raise ValidationError(
                f"There is a profile {name!r} already. Open its current version and change that."
            )
        return name

    def clean_parameters(self) -> Any:
        """Take an empty box for no parameters."""
        value = self.cleaned_data["parameters"]
        return {} if value is None else value


@admin.register(CompactionProfile)
class CompactionProfileAdmin(ReadOnlyAdmin):
    """A named set of parameters; the current version can be changed, which makes the next one."""

    form = ProfileForm
    list_display = (
        "label",
        "version",
        "base",
        "is_default",
        "is_current",
        "description",
        "created_at",
    )
    list_filter = ("is_current", "is_default", "base")
    list_only = (
        "name",
        "version",
        "base",
        "is_default",
        "is_current",
        "description",
        "created_at",
    )
    ordering = ("name", "-version")
    sortable_by = ()
    search_help_text = "A part of the name or the description."
    actions = ("make_default",)
    detail_actions = ("make_default",)

    # --- what may be done -------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may make new profiles."""
        return bool(request.user.has_perm("compaction.add_compactionprofile"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the operator may make a next version; only of the current one."""
        allowed = bool(request.user.has_perm("compaction.change_compactionprofile"))
        return allowed and (obj is None or obj.is_current)

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
            return format_html("{} is the default now.", cells.row_link(made))

        for_each(request, rows, choose)

    def buttons_for(self, request: HttpRequest, obj: CompactionProfile) -> list[str]:
        """A current version that is not the default yet can become it."""
        return list(self.detail_actions) if obj.is_current and not obj.is_default else []

    # --- list -------------------------------------------------------------------------------------

    @admin.display(description="Profile")
    def label(self, profile: CompactionProfile) -> str:
        """Return name and version."""
        return str(profile)

    def search_q(self, wanted: str) -> Q:
        """Search name and description."""
        return Q(name__icontains=wanted) | Q(description__icontains=wanted)

    # --- form -------------------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields, or for an old version the same to read."""
        if obj is None:
            return [(None, {"fields": ["name", "base", "parameters", "description"]})]
        editable = self.has_change_permission(request, obj)
        shown = "parameters" if editable else "parameters_json"
        return [
            (
                None,
                {
                    "fields": ["name", "version", "base", shown, "description"],
                    "description": SENTENCE if editable else "An old version can only be read.",
                },
            ),
            ("State", {"fields": ["is_current", "is_default", "created_at"]}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what a form shows but does not take."""
        if obj is None:
            return ()
        return ("name", "version", "parameters_json", "is_current", "is_default", "created_at")

    @admin.display(description="Parameters")
    def parameters_json(self, profile: CompactionProfile) -> str:
        """Return the parameters of a version that cannot be changed."""
        return cells.stored_json(profile.parameters)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Store a new version; `obj` becomes that row, so that log and messages name it."""
        saved = save_profile(
            name=obj.name,
            base=obj.base,
            parameters=obj.parameters,
            description=obj.description,
        )
        obj.__dict__.update(saved.__dict__)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """After "save and continue", show the new version."""
        response = super().response_change(request, obj)
        if "_continue" in request.POST:
            return HttpResponseRedirect(cells.change_url(CompactionProfile, obj.pk))
        return response

    # --- page -------------------------------------------------------------------------------------

    def links_for(self, request: HttpRequest, obj: CompactionProfile) -> list[Link]:
        """Return the way to the runs of this version."""
        return [Link(label="Runs", url=cells.list_url(CompactionRun, profile__id__exact=obj.pk))]

    def tables_for(self, request: HttpRequest, obj: CompactionProfile) -> list[Table]:
        """Return every parameter in force and the other versions."""
        return [parameter_table(obj), version_table(obj)]


def parameter_table(profile: CompactionProfile) -> Table:
    """Return every parameter with the value in force, what it does and what it may be."""
    stored = CompactionProfile.objects.get(pk=profile.pk)
    try:
        values = stored.resolved().as_dict()
    except ProfileError as error:
        return Table(title="Parameters in force", columns=(), rows=[], empty=str(error))
    return Table(
        title="Parameters in force",
        columns=("Parameter", "Value", "Allowed", "What it does"),
        note="The preset, then for bisect the SUMMARY_… variables, then what is set above.",
        rows=[
            (
                item.name,
                json.dumps(values[item.name]),
                allowed_values(item.name, item.metadata),
                item.metadata["help"],
            )
            for item in fields(Profile)
        ],
    )


def allowed_values(name: str, limits: Any) -> str:
    """Return what a parameter may be."""
    if "choices" in limits:
        return ", ".join(limits["choices"])
    if "minimum" in limits:
        unit = f" {limits['unit']}" if limits["unit"] else ""
        return f"{limits['minimum']:,} to {limits['maximum']:,}{unit}"
    return "true, false" if parameter_types()[name] is bool else "text"


def version_table(profile: CompactionProfile) -> Table:
    """Return the newest versions of the profile."""
    rows = CompactionProfile.objects.filter(name=profile.name).order_by("-version")
    return Table(
        title="Versions",
        columns=("Version", "Preset", "Parameters", "Current", "Default"),
        rows=[
            (
                cells.row_link(row),
                row.base,
                json.dumps(row.parameters, ensure_ascii=False),
                "yes" if row.is_current else "",
                "yes" if row.is_default else "",
            )
            for row in rows[:VERSIONS_SHOWN]
        ],
    )

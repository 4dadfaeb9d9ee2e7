"""API keys: who has which, when they were used; making and revoking them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from chatapp.admin.toolkit import html
from chatapp.admin.toolkit.columns import OWNER, column
from chatapp.admin.toolkit.model_admin import WideList
from chatapp.admin.toolkit.page_parts import Section
from chatapp.admin.toolkit.permissions import holds
from chatapp.formatting import when
from chatapp.keys import (
    ORDINARY_SCOPES,
    ApiKey,
    KeyRefusedError,
    check_key,
    create_key,
    revoke_key,
)

if TYPE_CHECKING:
    _KeyForm = forms.ModelForm[ApiKey]
else:
    _KeyForm = forms.ModelForm

MOST_DAYS = 3_650
_TONES = {"active": "good", "expired": "busy", "revoked": "bad"}


class ApiKeyForm(_KeyForm):
    """What a new key needs; the key is made where the form is found valid."""

    scopes = forms.MultipleChoiceField(
        choices=ApiKey.Scope.choices,
        initial=list(ORDINARY_SCOPES),
        widget=forms.CheckboxSelectMultiple,
    )
    expires_days = forms.IntegerField(
        label="Expires after",
        required=False,
        min_value=1,
        max_value=MOST_DAYS,
        help_text="Days. Empty: never.",
    )

    class Meta:
        model = ApiKey
        fields = ("owner", "name", "scopes")

    def clean(self) -> dict[str, Any]:
        """Say at the form what the service would refuse."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                check_key(**self.wanted())
            except KeyRefusedError as refusal:
                self.add_error(None, str(refusal))
        return given

    def wanted(self) -> dict[str, Any]:
        """Return what the service is asked for."""
        days = self.cleaned_data["expires_days"]
        until = timezone.now() + timedelta(days=days) if days else None
        asked = {name: self.cleaned_data[name] for name in ("owner", "name", "scopes")}
        return asked | {"expires_at": until}


@admin.register(ApiKey)
class ApiKeyAdmin(WideList):
    """Who may add keys makes them: superusers for everybody, others for themselves.

    Whoever holds a key reads what its owner wrote, so a key for somebody else is no small thing.
    """

    form = ApiKeyForm
    add_form_template = "admin/change_form.html"
    list_display = (
        "name",
        "prefix_shown",
        "owner_shown",
        "scopes_shown",
        "state_shown",
        "created_at",
        "used_shown",
        "expires_shown",
    )
    list_select_related = ("owner",)
    list_only = ("owner__username", "revoked_at", "expires_at")
    search_help_text = "A part of the name, how the secret begins, or the owner."
    actions = ("revoke",)
    detail_actions = ("revoke",)
    sections = (
        Section(title=None, fields=("name", "prefix_shown", "owner_shown", "scopes_shown")),
        Section(
            title="Times",
            fields=("state_shown", "created_at", "used_shown", "expires_shown", "revoked_shown"),
        ),
    )

    def search_q(self, request: HttpRequest, wanted: str) -> Q:
        """Search name, prefix and owner."""
        return (
            Q(name__icontains=wanted)
            | Q(prefix__startswith=wanted[: ApiKey._meta.get_field("prefix").max_length])
            | Q(owner__username__icontains=wanted)
        )

    # --- making -----------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may make keys: permission `add API key`."""
        return holds(request, "chatapp.add_apikey")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields for a new key, the sections for one that is there."""
        if obj is None:
            return [(None, {"fields": ("owner", "name", "scopes", "expires_days")})]
        return super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Nothing of a key changes once it is made."""
        return () if obj is None else super().get_readonly_fields(request, obj)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the operator alone as the owner, unless they are a superuser."""
        people = get_user_model()._default_manager.filter(is_active=True)
        if not getattr(request.user, "is_superuser", False):
            people = people.filter(pk__in=[request.user.pk])
        return super().formfield_for_foreignkey(db_field, request, queryset=people, **kwargs)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Make the key; its secret stays with the request, for the page that shows it once."""
        made = create_key(**form.wanted())
        obj.__dict__.update(vars(made.key))
        request._key_secret = made.secret  # type: ignore[attr-defined]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return the form; or the new key's page, the only one that shows its secret."""
        more = {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().add_view(request, form_url, more | (extra_context or {}))

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the secret at once: a redirect would have to keep it somewhere until then."""
        context = self.admin_site.each_context(request) | {
            "title": "The API key is made",
            "opts": self.opts,
            "key": obj,
            "secret": request._key_secret,  # type: ignore[attr-defined]
        }
        return TemplateResponse(request, "admin/chatapp/key_made.html", context)

    # --- revoking ---------------------------------------------------------------------------------

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may revoke keys: permission `change API key`."""
        return holds(request, "chatapp.change_apikey")

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Have every selected key open nothing any more."""
        for key in self.chosen(request, queryset):
            if revoke_key(key):
                self.log_change(request, key, "Revoked.")
                self.message_user(request, f"{key} is revoked.", level=messages.SUCCESS)

    def buttons_for(self, request: HttpRequest, obj: ApiKey) -> list[str]:
        """A revoked key offers nothing."""
        return [] if obj.state == "revoked" else ["revoke"]

    # --- columns and fields -----------------------------------------------------------------------

    owner_shown = OWNER
    prefix_shown = column("Begins", "prefix", lambda prefix: f"{prefix}…")
    scopes_shown = column("Scopes", "scopes", ", ".join)
    state_shown = column("State", lambda key: html.badge(key.state.capitalize(), _TONES[key.state]))
    used_shown = column("Last used", "last_used_at", when)
    expires_shown = column("Expires", "expires_at", when)
    revoked_shown = column("Revoked", "revoked_at", when)

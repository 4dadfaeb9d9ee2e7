"""Forms on a row's page: what an action needs to be told before it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

# What the page that asks first sends besides: the operator has read it.
CONFIRMED = "confirmed"
# A digest of what that page said would happen.
PREVIEWED = "previewed"
CHANGED_SINCE = (
    "What you chose, or the conversation, is not as it was when this page was shown: this is what "
    "would happen now. Nothing was done yet."
)
NO_LONGER = "“{}” makes no sense here any more; this is how things stand now."


class RefusedError(Exception):
    """What was asked cannot be done; the text is a sentence for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageForm:
    """One form of a page.

    `make(request, row, data)` returns the form (data is None for an empty one), or None where it
    makes no sense for the row. `do(request, row, cleaned_data)` does it and returns the sentence
    that says so, or raises RefusedError. `may(request)` says whether the operator is allowed to.
    """

    label: str
    make: Callable[[HttpRequest, Any, Any], forms.Form | None]
    do: Callable[[HttpRequest, Any, dict[str, Any]], SafeString | str]
    may: Callable[[HttpRequest], bool]
    help: str = ""
    confirm: Callable[[HttpRequest, Any, dict[str, Any]], Sequence[SafeString | str]] | None = None
    """What it would do, as sentences of a page that asks before it is done; or RefusedError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForm:
    """A form as the template draws it; one with errors stands open.

    `asks_before`: a page says what would be done, and asks, before it is.
    """

    name: str
    label: str
    help: str
    url: str
    form: forms.Form
    asks_before: bool = False

    @property
    def is_button(self) -> bool:
        """Whether a press can lead on: the page that asks first has the same fields again."""
        needs = any(field.required for field in self.form.fields.values())
        return self.asks_before and not (needs or self.form.is_bound)

    @property
    def is_open(self) -> bool:
        """Whether the operator has to look at it."""
        return bool(self.form.is_bound and self.form.errors)


def is_confirmed(request: HttpRequest, sentences: Sequence[SafeString | str]) -> bool:
    """Whether the operator has read what would happen now, and said yes to it."""
    if CONFIRMED not in request.POST:
        return False
    return request.POST.get(PREVIEWED) == _digest(sentences)


def _digest(sentences: Sequence[SafeString | str]) -> str:
    return hashlib.sha256("\n".join(map(str, sentences)).encode()).hexdigest()


def confirm_page(
    request: HttpRequest,
    model_admin: Any,
    *,
    title: str,
    sentences: Sequence[SafeString | str],
    form: forms.Form | None = None,
    hidden: Sequence[tuple[str, str]] = (),
    page: str = "",
) -> HttpResponse:
    """Return a page that says what would be done and asks; its button sends the same, confirmed.

    `page` is the row's own, for who goes back; without it that is the list. Who confirmed something
    else is told so.
    """
    opts = model_admin.opts
    told = [CHANGED_SINCE, *sentences] if CONFIRMED in request.POST else sentences
    return TemplateResponse(
        request,
        "admin/chatapp/confirm.html",
        {
            **model_admin.admin_site.each_context(request),
            "title": title,
            "opts": opts,
            "media": model_admin.media,
            "sentences": told,
            "form": form,
            "hidden": [*hidden, (CONFIRMED, "yes"), (PREVIEWED, _digest(sentences))],
            "url": request.get_full_path(),
            "page": page,
            "back": reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist"),
        },
    )


class PageForms(_ModelAdmin):
    """Adds `page_forms` to a row's page; each posts to <page>/do/<name>/ and comes back."""

    page_forms: ClassVar[Mapping[str, PageForm]] = {}

    def forms_of_page(self) -> Mapping[str, PageForm]:
        """Return the forms of a row's page by their names in its address."""
        return self.page_forms

    def get_urls(self) -> list[URLPattern]:
        """Add the address that the forms post to."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_do"
        own = path(
            "<path:object_id>/do/<slug:name>/", self.admin_site.admin_view(self.do_view), name=name
        )
        return [own, *super().get_urls()]

    def forms_shown(self, request: HttpRequest, obj: Any) -> list[ShownForm]:
        """Return the forms of a row's page that the operator may use; a refused one as it was."""
        refused: Mapping[str, forms.Form] = getattr(request, "_refused_forms", {})
        shown = []
        for name, each in self.forms_of_page().items():
            form = refused.get(name)
            if form is None and each.may(request):
                form = each.make(request, obj, None)
            if form is not None:
                url = reverse(
                    f"admin:{self.opts.app_label}_{self.opts.model_name}_do", args=[obj.pk, name]
                )
                shown.append(
                    ShownForm(
                        name=name,
                        label=each.label,
                        help=each.help,
                        url=url,
                        form=form,
                        asks_before=each.confirm is not None,
                    )
                )
        return shown

    def page_after(self, request: HttpRequest, obj: Any) -> str:
        """Return the address that a form leads back to: the row's page."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[obj.pk])

    def do_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do what a form asks for and go back to the page; show it again where it is wrong."""
        obj = self.get_object(request, object_id)
        each = self.forms_of_page().get(name)
        if obj is None or each is None:
            raise Http404
        if not (self.has_view_permission(request, obj) and each.may(request)):
            raise PermissionDenied
        page = self.page_after(request, obj)
        form = each.make(request, obj, request.POST) if request.method == "POST" else None
        if form is None:
            if request.method == "POST":
                self.message_user(request, NO_LONGER.format(each.label), level=messages.WARNING)
            return HttpResponseRedirect(page)
        if form.is_valid():
            try:
                if each.confirm is not None:
                    sentences = each.confirm(request, obj, form.cleaned_data)
                    if not is_confirmed(request, sentences):
                        return confirm_page(
                            request,
                            self,
                            title=each.label,
                            sentences=sentences,
                            form=form,
                            page=page,
                        )
                told = each.do(request, obj, form.cleaned_data)
                # Django's own history of the row says who did it.
                self.log_change(request, obj, f"{each.label}: {strip_tags(told)}")
                self.message_user(request, told, level=messages.SUCCESS)
                return HttpResponseRedirect(page)
            except RefusedError as refusal:
                form.add_error(None, str(refusal))
        request._refused_forms = {name: form}  # type: ignore[attr-defined]
        request.method = "GET"
        return self.change_view(request, object_id)

"""Users: Django's own pages, and the action that erases a person."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from chatapp.admin.toolkit.permissions import holds, may_see_texts
from chatapp.erasure import Erased, erase_user, told, what_erasing_takes

MOST_AT_ONCE = 20
# Of Django's own user; one of a project may lack them.
TIMES = ("last_login", "date_joined")
NAMELESS = "a person"


class ErasingPeople(admin.ModelAdmin):  # type: ignore[type-arg]
    """Adds the action, and the way to the owner's page, to whatever pages users have."""

    change_form_template = "admin/chatapp/user.html"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the times that nobody sets by hand: so they read as on every other page."""
        own: Any = super().get_readonly_fields(request, obj)
        return (*own, *(name for name in TIMES if hasattr(self.model, name)))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Name only the users to who may not see texts: sessions go by their titles."""
        named, counts, lacking, protected = super().get_deleted_objects(objs, request)
        if not may_see_texts(request):
            named = [str(each) for each in objs]
        return named, counts, lacking, protected

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Add it for whoever may erase people."""
        found: dict[str, Any] = super().get_actions(request)
        if may_erase(request):
            found["erase"] = (erase, "erase", "Erase selected people and all they wrote")
        return found


def may_erase(request: HttpRequest) -> bool:
    """Whether the operator may erase people: permission `erase a person`, which few are given."""
    return holds(request, "chatapp.erase_user")


def erase(
    pages: admin.ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]
) -> HttpResponse | None:
    """Erase the selected users, after a page that says what there is of them and asks."""
    people = list(queryset[: MOST_AT_ONCE + 1])
    refusal = _refusal(request, people)
    if refusal:
        pages.message_user(request, f"Nothing was erased: {refusal}", level=messages.ERROR)
        return None
    if "erase_them" not in request.POST:
        context = pages.admin_site.each_context(request) | {
            "title": "Erase people and all they wrote",
            "opts": pages.opts,
            "people": [(person, what_erasing_takes(person)) for person in people],
        }
        return TemplateResponse(request, "admin/chatapp/erase.html", context)
    for person in people:
        key = person.pk
        erased = erase_user(person)
        _note(request, key, erased)
        pages.message_user(request, told(erased), level=messages.SUCCESS)
    return None


def _refusal(request: HttpRequest, people: list[Any]) -> str:
    """Return why these people are not erased; nothing where they may be."""
    is_superuser = getattr(request.user, "is_superuser", False)
    if len(people) > MOST_AT_ONCE:
        return f"more than {MOST_AT_ONCE} people are selected. Select fewer."
    if any(person.pk == request.user.pk for person in people):
        return "you are among them. Somebody else has to erase you, or manage.py erase_user."
    if not is_superuser and any(person.is_superuser for person in people):
        return "there are superusers among them, whom only superusers may erase."
    return ""


def _note(request: HttpRequest, key: Any, erased: Erased) -> None:
    """Write into the history who erased somebody, and how much, but not whom."""
    operator: Any = request.user
    LogEntry.objects.create(
        user=operator,
        content_type=ContentType.objects.get_for_model(get_user_model()),
        object_id=str(key),
        object_repr=NAMELESS,
        action_flag=DELETION,
        change_message=told(erased),
    )


def add_to_pages() -> None:
    """Have the users' pages, where there are any, offer the action.

    Django's own are registered first, whichever of the two modules somebody imported first.
    """
    import_module("django.contrib.auth.admin")
    users = get_user_model()
    if admin.site.is_registered(users):
        own = type(admin.site.get_model_admin(users))
        admin.site.unregister(users)
        admin.site.register(users, type(f"Erasing{own.__name__}", (ErasingPeople, own), {}))


add_to_pages()

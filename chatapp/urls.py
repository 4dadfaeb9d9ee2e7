"""All addresses: the admin, the API of both apps, and the way from the front door to the admin."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.generic import RedirectView


def health(request: HttpRequest) -> HttpResponse:
    """Answer a load balancer: the process is up and can reach its database."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return HttpResponse("ok\n", content_type="text/plain")


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="front"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("chatapp.api.urls")),
    path("api/v1/", include("compaction.api.urls")),
    path("health/", health, name="health"),
]

"""All addresses: the admin, the API of both apps, and the way from the front door to the admin."""

from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

handler404 = "chatapp.api.exceptions.not_found"
handler500 = "chatapp.api.exceptions.server_error"


def health(request: HttpRequest) -> HttpResponse:
    """Answer a load balancer: the process is up and can reach its database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return HttpResponse("ok\n", content_type="text/plain")


def favicon(request: HttpRequest) -> HttpResponse:
    """Send browsers, which ask here unbidden, to the icon among the static files."""
    return HttpResponseRedirect(static("chatapp/favicon.svg"))


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="front"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("chatapp.api.urls")),
    path("api/v1/", include("compaction.api.urls")),
    path("health/", health, name="health"),
    path("favicon.ico", favicon, name="favicon"),
]

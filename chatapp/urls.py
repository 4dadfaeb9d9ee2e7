"""All addresses: the admin, the API, what other apps add, and the way from the front door."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

from chatapp.extensions import extension_urls
from chatapp.health import healthz, readyz

# The pages are registered here, where they are needed first (chatapp/site.py).
admin.autodiscover()

handler404 = "chatapp.api.exceptions.not_found"
handler500 = "chatapp.api.exceptions.server_error"


def favicon(request: HttpRequest) -> HttpResponse:
    """Send browsers, which ask here unbidden, to the icon among the static files."""
    return HttpResponseRedirect(static("chatapp/favicon.svg"))


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="front"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("chatapp.api.urls")),
    *extension_urls(),
    path("healthz", healthz, name="healthz"),
    path("health/", healthz),  # the older name
    path("readyz", readyz, name="readyz"),
    path("favicon.ico", favicon, name="favicon"),
]

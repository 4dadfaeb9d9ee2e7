"""The API's page: Swagger UI from our own static files, with the CSP exception that it needs."""

from __future__ import annotations

from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.views import SpectacularSwaggerView


@method_decorator(
    csp_update(
        {
            "script-src": [SELF, UNSAFE_INLINE],
            "style-src": [SELF, UNSAFE_INLINE],
            "img-src": [SELF, "data:"],
        }
    ),
    name="dispatch",
)
class DocsView(SpectacularSwaggerView):
    """The schema as a page where requests can be tried."""

    url_name = "schema"
    # OPTIONS would ask for a template that describes the page.
    http_method_names = ["get", "head"]

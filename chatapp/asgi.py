"""The ASGI application: `uvicorn chatapp.asgi:application`."""

import os
import warnings

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")

# Static files come from WhiteNoise as synchronous iterators; they are small and this is known.
warnings.filterwarnings(
    "ignore", message="StreamingHttpResponse must consume synchronous iterators"
)

application = get_asgi_application()

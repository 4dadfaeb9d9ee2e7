"""The ASGI application: `uvicorn chatapp.asgi:application`."""

import os
import warnings

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
django.setup(set_prefix=False)

from chatapp.handler import ThreadPoolHandler  # noqa: E402  # needs the settings

# Static files come from WhiteNoise as synchronous iterators; they are small and this is known.
warnings.filterwarnings(
    "ignore", message="StreamingHttpResponse must consume synchronous iterators"
)

application = ThreadPoolHandler()

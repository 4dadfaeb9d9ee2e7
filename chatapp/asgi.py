"""The ASGI application: `uvicorn chatapp.asgi:application`."""

import gc
import os
import sys
import warnings

import django

# How long a thread may compute before another one's turn comes. Each hop of a request between the
# event loop and its thread waits for all that compute: with Python's 5 ms and many turns that begin
# at one moment, a health check took a second.
sys.setswitchinterval(0.0005)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402
from django.urls import get_resolver  # noqa: E402

from chatapp.database import share_connections  # noqa: E402  # needs the settings
from chatapp.handler import ThreadPoolHandler  # noqa: E402
from chatapp.llm.openai_client import load_ahead  # noqa: E402

# Static files come from WhiteNoise as synchronous iterators; they are small and this is known.
warnings.filterwarnings(
    "ignore", message="StreamingHttpResponse must consume synchronous iterators"
)

share_connections(settings.DATABASE_POOL_SIZE)
application = ThreadPoolHandler()
# The first request would load them; with them most of what stays for ever is there.
_ = get_resolver().url_patterns
# Behind everything else: threads that import the same modules wait for each other. What is loaded
# stays, and looking through it for garbage kept all threads waiting for 0.15 seconds each time, in
# which no health check was answered.
load_ahead(then=gc.freeze)

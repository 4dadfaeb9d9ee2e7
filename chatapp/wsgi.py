"""The WSGI application, for servers that only speak WSGI; streams are buffered there."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")

application = get_wsgi_application()

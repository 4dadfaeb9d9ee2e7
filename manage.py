#!/usr/bin/env python
"""Palimpsest's command line: `manage.py demo` is the place to start."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from chatapp.environment import VariableError

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if settings.configured and not isinstance(error, VariableError):
            raise
        sys.exit(str(error))  # the environment's fault: a sentence, not a traceback

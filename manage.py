#!/usr/bin/env python
"""Palimpsest's command line: `manage.py demo` is the place to start."""

import gc
import os
import sys

if __name__ == "__main__":
    # Loading makes some hundred thousand objects that stay: looking through them again and again
    # for what is not needed any more would be a fifth of a command's start.
    gc.disable()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import BaseCommand, ManagementUtility
    from django.db.utils import Error

    from chatapp.environment import VariableError

    OBJECTS_BETWEEN_LOOKS = 10_000

    class Commands(ManagementUtility):
        """Django's commands; the collector begins its work when one of them does."""

        def fetch_command(self, subcommand: str) -> BaseCommand:
            """Return a command, with everything that it was loaded with out of the way."""
            command = super().fetch_command(subcommand)
            gc.freeze()
            gc.set_threshold(OBJECTS_BETWEEN_LOOKS)
            gc.enable()
            return command

    try:
        Commands(sys.argv).execute()
    except Error as error:
        from chatapp.database import UNMIGRATED, trouble_words

        if trouble_words(error) != UNMIGRATED:
            raise
        sys.exit(UNMIGRATED)
    except ImproperlyConfigured as error:
        if settings.configured and not isinstance(error, VariableError):
            raise
        sys.exit(str(error))  # the environment's fault: a sentence, not a traceback

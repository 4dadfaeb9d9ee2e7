#!/usr/bin/env python
"""Palimpsest's command line: `manage.py demo` is the place to start."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)

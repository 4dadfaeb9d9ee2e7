"""The chat without the compaction app, in an interpreter of its own, where settings can differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = """
import django
django.setup()
from django.test.utils import setup_test_environment
setup_test_environment()
from django.db import connection
connection.creation.create_test_db(verbosity=0)
from django.contrib.auth import get_user_model
from django.test import Client
"""
END = 'print("works alone")\n'


def assert_works_alone(code: str, folder: Path) -> None:
    """Run code on a fresh database where only chatapp is installed; its asserts have to hold."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings_full_history",
        "PALIMPSEST_DATA_DIR": str(folder),
        "DATABASE_URL": f"sqlite:///{folder / 'alone.sqlite3'}",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", START + code + END],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["works alone"], done.stderr

"""Settings for the tests: the product's own, on a database of the test run."""

import os
import tempfile
from pathlib import Path

DATA = Path(tempfile.mkdtemp(prefix="palimpsest-tests-"))
os.environ.setdefault("PALIMPSEST_DATA_DIR", str(DATA))
os.environ.setdefault("SECRET_KEY", "only-for-tests")
for name in list(os.environ):
    if name.startswith(("OPENAI_", "SUMMARY_", "COMPACTION_", "DYNAMIC_SUMMARY")):
        del os.environ[name]

from chatapp.settings import *  # noqa: E402, F403
from chatapp.settings import DATABASES, INSTALLED_APPS  # noqa: E402

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A file, so that threads and worker processes see what a test stored.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA / "test.sqlite3")}
INSTALLED_APPS = [*INSTALLED_APPS]

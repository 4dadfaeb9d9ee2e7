"""Settings for the tests: the product's own, on a database and a data folder of the test run."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

if "PALIMPSEST_DATA_DIR" not in os.environ:
    # Worker processes that a test starts get the same folder through the environment.
    os.environ["PALIMPSEST_DATA_DIR"] = tempfile.mkdtemp(prefix="palimpsest-tests-")
    atexit.register(shutil.rmtree, os.environ["PALIMPSEST_DATA_DIR"], ignore_errors=True)
CONNECTING_OR_TUNING = (
    "OPENAI_", "SUMMARY_", "COMPACTION_", "DYNAMIC_SUMMARY", "HISTORY_LIMIT", "TOKEN_COUNTER",
    "TURN_", "MAX_", "PART_", "MODEL_TIMEOUT", "STREAM_", "HEARTBEAT_", "EMBEDDED_", "TIKTOKEN_",
)  # fmt: skip
os.environ.setdefault("SECRET_KEY", "only-for-tests")
# Every process of the tests has its own queue: what another one leaves in a shared Redis is not
# taken for the tasks of this one's runs.
os.environ.setdefault(
    "QUEUE_NAME",
    "-".join([Path(os.environ["PALIMPSEST_DATA_DIR"]).name, os.getenv("PYTEST_XDIST_WORKER", "")]),
)
for name in list(os.environ):
    # What a developer's shell connects or tunes is no matter of the tests.
    if name.startswith(CONNECTING_OR_TUNING):
        del os.environ[name]

# Most tests have a model server that answers with a fixed text, and look for that text. Those of
# the ledger and the gate switch them on (tests/compaction/test_ledger.py).
os.environ["SUMMARY_LEDGER"] = os.environ["SUMMARY_QUALITY_GATE"] = "false"

# The suite was written for counts of messages; tests of the default name no profile.
os.environ["COMPACTION_PROFILE"] = "bisect"

from chatapp.settings import *  # noqa: E402, F403
from chatapp.settings import DATA_DIR, DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True
# Every process of the tests makes its tables from the models; one test runs the migrations and
# compares what comes of them. What `migrate` installs (presets, schedules) is there either way.
# No test outlives a power cut, so no commit waits for the disk.
DATABASE = DATABASES["default"]
DATABASE["TEST"] = {"MIGRATE": False}
if DATABASE["ENGINE"] == "django.db.backends.sqlite3":
    # A file, so that threads and worker processes see what a test stored.
    DATABASE["TEST"]["NAME"] = str(Path(DATA_DIR) / "test.sqlite3")
    DATABASE["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"
else:
    DATABASE["OPTIONS"]["options"] = "-c synchronous_commit=off"

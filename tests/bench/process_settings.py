"""Settings of the processes that a benchmark starts: web server, queue and writers.

They are the tests' own, with the models and the context backend that the benchmark chose for this
one process: BENCH_MODELS as JSON, BENCH_CONTEXT as a dotted path.
"""

import json
import os

from tests.bench.process_limits import PLENTIFUL
from tests.settings import *  # noqa: F403
from tests.settings import CHATAPP, COMPACTION

CHATAPP = CHATAPP | {
    "MODELS": json.loads(os.environ["BENCH_MODELS"]),
    "CONTEXT": {"BACKEND": os.environ["BENCH_CONTEXT"], "OPTIONS": {}},
}
# The product's addresses, and beside them views that do as little as can be.
ROOT_URLCONF = "tests.bench.floor"
COMPACTION = COMPACTION | PLENTIFUL

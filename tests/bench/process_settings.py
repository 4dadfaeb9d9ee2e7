"""Settings of the processes that a benchmark starts: web server, queue and writers.

They are the tests' own, with the models and the context backend that the benchmark chose for this
one process: BENCH_MODELS as JSON, BENCH_CONTEXT as a dotted path.
"""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import CHATAPP, COMPACTION

CHATAPP = CHATAPP | {
    "MODELS": json.loads(os.environ["BENCH_MODELS"]),
    "CONTEXT": {"BACKEND": os.environ["BENCH_CONTEXT"], "OPTIONS": {}},
}
# A benchmark stores in a minute what an owner stores in days. The budget is asked for all the same.
PLENTY = 10**9
COMPACTION = COMPACTION | {
    "SESSION_CALLS_PER_HOUR": PLENTY,
    "SESSION_TOKENS_PER_HOUR": PLENTY,
    "OWNER_CALLS_PER_HOUR": PLENTY,
    "OWNER_TOKENS_PER_HOUR": PLENTY,
}

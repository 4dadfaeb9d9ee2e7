"""Settings of a real cluster in a test: the product's own, on the database the test runs on.

Everything comes from the environment; CLUSTER_DATABASE is the name of the test's database.
"""

import os

from chatapp.settings import *  # noqa: F403
from chatapp.settings import DATABASES

DATABASES["default"]["NAME"] = os.environ["CLUSTER_DATABASE"]

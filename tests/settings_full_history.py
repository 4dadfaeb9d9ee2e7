"""The product without compaction: the chat alone, which sends everything."""

from tests.settings import *  # noqa: F403
from tests.settings import CHATAPP, INSTALLED_APPS

INSTALLED_APPS = [name for name in INSTALLED_APPS if name != "compaction"]
ROOT_URLCONF = "tests.urls_full_history"
CHATAPP = CHATAPP | {
    "CONTEXT": {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}}
}

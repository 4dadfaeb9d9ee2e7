"""What the chaos works on: a database, a queue and a folder of its own, made anew and removed."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

DRIVER = "chaos-driver"
# Short times, so that everything that takes its time happens within the test.
TIMES = {
    # What a summary has read is told by the marks in its text: it has to be the model's own.
    "SUMMARY_LEDGER": "false",
    "SUMMARY_QUALITY_GATE": "false",
    "COMPACTION_LEASE_SECONDS": 8,
    "COMPACTION_HEARTBEAT_SECONDS": 1,
    "COMPACTION_BACKOFF_SECONDS": 1,
    "COMPACTION_QUEUED_RUN_SECONDS": 5,
    "COMPACTION_RUN_SECONDS": 40,
    "COMPACTION_INLINE_SECONDS": 8,
    "COMPACTION_BREAKER_SECONDS": 2,
    "MODEL_TIMEOUT_SECONDS": 6,
    "QUEUE_TIMEOUT_SECONDS": 60,
    "QUEUE_WORKERS": 2,
    "TURN_SECONDS": 10,
}
# Nothing is skipped because it costs too much.
BUDGETS = {
    f"COMPACTION_{who}_{what}_PER_HOUR": 0
    for who in ("SESSION", "OWNER")
    for what in ("CALLS", "TOKENS")
}
# What a developer's shell connects or tunes is no matter of the test.
CONNECTING_OR_TUNING = (
    "OPENAI_", "COMPACTION_", "SUMMARY_", "DYNAMIC_SUMMARY", "HISTORY_LIMIT", "CONTEXT_SIZE",
    "TAIL_KEEP_SIZE", "COMPRESSION_", "TURN_", "MAX_", "STREAM_", "REQUEST_", "HEARTBEAT_",
    "QUEUE_", "READYZ_", "LOG_", "HTTPS", "ALLOWED_HOSTS", "CONN_MAX_AGE",
)  # fmt: skip


class NotThereError(Exception):
    """PostgreSQL or Redis is not there; the text says which, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Names of everything that is made; `create` makes it and `remove` takes it away."""

    server_url: str
    redis_url: str
    database: str
    queue: str
    folder: Path

    @classmethod
    def of(cls, environment: Mapping[str, str], *, database: str) -> Surroundings:
        """Return them for a server and a Redis; raise NotThereError where one is missing."""
        server, redis = environment.get("DATABASE_URL", ""), environment.get("REDIS_URL", "")
        if not server.startswith(("postgres://", "postgresql://")) or not redis:
            raise NotThereError(
                "The chaos test needs PostgreSQL and Redis: set DATABASE_URL "
                "(postgres://user@host/name) and REDIS_URL (redis://host/number)."
            )
        found = cls(
            server_url=server,
            redis_url=redis,
            database=database,
            queue=f"chaos-{secrets.token_hex(6)}",
            folder=Path(tempfile.mkdtemp(prefix="palimpsest-chaos-")),
        )
        try:
            found._ask_both()
        except NotThereError:
            shutil.rmtree(found.folder)
            raise
        return found

    @property
    def database_url(self) -> str:
        """The address of the database that is made beside the one that was named."""
        return urlunsplit(urlsplit(self.server_url)._replace(path=f"/{self.database}"))

    def environment(self, model_url: str) -> dict[str, str]:
        """Return the variables that the product's processes are started with."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(CONNECTING_OR_TUNING)
        }
        numbers = {name: str(value) for name, value in (TIMES | BUDGETS).items()}
        return inherited | numbers | {
            "DJANGO_SETTINGS_MODULE": "chatapp.settings",
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "QUEUE_NAME": self.queue,
            "PALIMPSEST_DATA_DIR": str(self.folder),
            "SECRET_KEY": f"only-for-{self.queue}-{'0123456789' * 5}",
            "OPENAI_BASE_URL": model_url,
            "OPENAI_API_KEY": "test",
            "TOKEN_COUNTER": "estimate",
            "PYTHONUNBUFFERED": "1",
            "PGAPPNAME": "chaos-process",
        }  # fmt: skip

    def create(self) -> None:
        """Make the database, empty."""
        self._drop()
        self._execute(f'CREATE DATABASE "{self.database}"')

    def remove(self, *, keep: bool) -> None:
        """Remove the queue's keys and, unless they are to be kept, database and folder."""
        import redis

        with redis.from_url(self.redis_url) as client:
            for key in client.scan_iter(f"django_q:{self.queue}*"):
                client.delete(key)
        if not keep:
            self._drop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _drop(self) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{self.database}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.server_url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement)

    def _ask_both(self) -> None:
        try:
            import psycopg
            import redis
        except ImportError as error:
            raise NotThereError(
                f"The chaos test needs the extras postgres and redis: {error}."
            ) from error
        try:
            self._execute("SELECT 1")
        except psycopg.Error as error:
            raise NotThereError(
                f"PostgreSQL does not answer: {str(error).strip()}. Start it, or correct "
                "DATABASE_URL."
            ) from error
        try:
            with redis.from_url(self.redis_url) as client:
                client.ping()
        except (redis.RedisError, ValueError) as error:
            raise NotThereError(
                f"Redis does not answer: {error}. Start it, or correct REDIS_URL."
            ) from error

"""Every setting, declared once: type, default, unit, what it does, and the variable that sets it.

`settings.py` composes Django's settings from `ServerSettings` and `ModelSettings`. CHATAPP is a
dict in there whose keys are the fields of `ChatappSettings` in upper case; the code reads it as
`chatapp_settings`. The tables of docs/settings.md are generated from these declarations.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chatapp.environment import (
    Database,
    Folder,
    JsonObject,
    Level,
    LineFormat,
    Pieces,
    SettingsGroup,
    Switch,
    lazy_settings,
    setting,
)

BASE_DIR = Path(__file__).resolve().parent.parent
ONE_YEAR_SECONDS = 31_536_000
# Marks the system checks of what somebody set. A command looks at these before it begins; pages,
# addresses and tables, which it does not touch, take it longer than most commands work.
SETTINGS_TAG = "settings"
COMMAND_CHECKS = (SETTINGS_TAG,)


class ServerSettings(SettingsGroup):
    """What Django, the queue and the log need to know of the machine."""

    secret_key: str = setting(
        "",
        "Signs sessions and queued tasks; must be set in production.",
        shown="a key made for this machine",
    )
    secret_key_fallbacks: Pieces = setting(
        (), "Older keys, comma-separated, that are still accepted."
    )
    debug: Switch = setting(False, "Django's debug pages; never in production.")
    allowed_hosts: Pieces = setting(
        ("localhost", "127.0.0.1", "[::1]"),
        "Host names that are served, comma-separated.",
        shown="localhost",
    )
    csrf_trusted_origins: Pieces = setting(
        (), "Origins that may post forms, such as `https://chat.example.com`."
    )
    https: Switch = setting(False, "Secure cookies, redirect to HTTPS, HSTS.")
    secure_ssl_redirect: Switch = setting(
        lambda given: given["https"],
        "Redirect plain HTTP; off where the proxy does it.",
        shown="as `HTTPS`",
    )
    secure_hsts_seconds: int = setting(
        lambda given: ONE_YEAR_SECONDS if given["https"] else 0,
        "How long browsers insist on HTTPS.",
        unit="seconds",
        shown="a year with `HTTPS`",
    )
    behind_proxy: Switch = setting(False, "Trust `X-Forwarded-Proto` of your proxy.")
    data_dir: Folder = setting(
        BASE_DIR / "var",
        "Database file, static files, encodings, cache, the made key.",
        variable="PALIMPSEST_DATA_DIR",
        shown="`var/`",
        check_default=True,
    )
    database: Database = setting(
        lambda given: f"sqlite:///{given['data_dir'] / 'palimpsest.sqlite3'}",
        "The database, as `postgres://user:password@host/name`.",
        variable="DATABASE_URL",
        shown="SQLite in the data folder",
        check_default=True,
    )
    part_storage: str = setting(
        "chatapp.part_store.PartStorage",
        "Django storage for the data of images and files, by its dotted path, such as "
        "`storages.backends.s3.S3Storage`.",
        shown="files below the data folder, in `parts/`",
    )
    part_storage_options: JsonObject = setting(
        dict,
        'Its options, as JSON: `{"bucket_name": "chats"}`.',
        shown="none",
    )
    answer_dir: Folder = setting(
        lambda given: given["data_dir"] / "answers",
        "Where an answer waits that the database cannot store; best on another disk than SQLite's "
        "file, and one folder for all machines.",
        shown="`answers/` in the data folder",
    )
    conn_max_age: int = setting(
        lambda given: 60 if on_sqlite(given["database"]) else 0,
        "How long a thread keeps its database connection. With PostgreSQL the threads of a web "
        "process share connections instead (`DATABASE_POOL_SIZE`), and this counts where they do "
        "not: up to `REQUEST_THREADS` and `SLOW_THREADS` connections a process.",
        unit="seconds",
        shown="`60` on SQLite, else `0`",
    )
    database_pool_size: int = setting(
        20,
        "Most PostgreSQL connections that the threads of a web process share; `0`: each request "
        "opens its own. A thread that waits longer than 10 s for one answers 503.",
    )
    database_behind_pgbouncer: Switch = setting(
        False,
        "PostgreSQL is reached through PgBouncer in transaction mode: no server-side cursors.",
    )
    redis_url: str = setting("", "Queue and cache in Redis instead of database and files.")
    time_zone: str = setting("UTC", "The admin's time zone; the API speaks UTC.")
    log_level: Level = setting("INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`.")
    log_format: LineFormat = setting("line", "`line`, or `json`: one object a line.")
    metrics_token: str = setting(
        "", "Who sends it as `Authorization: Bearer …` may read `/metrics`."
    )
    readyz_parts: Pieces | None = setting(
        None, "What `/readyz` looks at, comma-separated.", shown="`database,broker,queue`"
    )
    queue_name: str = setting(
        "palimpsest", "Name of the cluster; two installations on one Redis need two."
    )
    queue_workers: int = setting(2, "Worker processes of a cluster.")
    queue_timeout_seconds: int = setting(600, "A task is killed after this long.", unit="seconds")
    queue_retry_seconds: int = setting(
        # One worker works off two tasks before the one that waits behind them.
        lambda given: (3 if given["queue_workers"] > 1 else 4) * given["queue_timeout_seconds"],
        "A lost task is delivered again after this long.",
        unit="seconds",
        shown="3 × time-out; with one worker 4 ×",
    )
    email_host: str = setting("", "Server that mails of alerts go out by.", shown="none")
    email_port: int = setting(587, "Its port.")
    email_user: str = setting("", "Its user, where it asks for one.")
    email_password: str = setting("", "Its password.")
    email_tls: Switch = setting(True, "Begin TLS on its connection (STARTTLS).")
    email_from: str = setting("palimpsest@localhost", "The sender of mails.")
    turn_rate: str = setting("", "Limit of turns a user, such as `60/min`.")
    session_idle_seconds: int = setting(
        43_200, "Who does nothing for so long in the admin has to log in again.", unit="seconds"
    )
    login_failures: int = setting(
        5,
        "After so many wrong passwords for a user from one address, no more are tried for a while; "
        "`0`: no limit.",
    )
    login_pause_seconds: int = setting(900, "How long that while is.", unit="seconds")


class ModelSettings(SettingsGroup):
    """The model server that CHATAPP["MODELS"] calls `default`, and what stands in for it."""

    openai_api_key: str = setting("", "Key of the model server.")
    openai_base_url: str = setting("", "Address of an OpenAI-compatible server.")
    openai_model: str = setting("gpt-4o-mini", "Name of the model.")
    openai_context_window: int = setting(128_000, "Its window.", unit="tokens")
    openai_max_output: int = setting(
        4096, "Longest answer; also what is kept free for it.", unit="tokens"
    )
    openai_encoding: str = setting(
        "", "tiktoken's encoding, such as `o200k_base`.", shown="by the model's name"
    )
    openai_single_leading_system: Switch = setting(
        False, "Prompt and summaries as one system message."
    )
    openai_keeps_responses: Switch = setting(
        False,
        "Sessions over the Responses API go on from the server's last answer "
        "(`previous_response_id`).",
    )
    openai_price_input: float = setting(0.0, "Money per million tokens that are read.")
    openai_price_cached: float = setting(0.0, "Money per million tokens read from its cache.")
    openai_price_output: float = setting(0.0, "Money per million tokens that are written.")
    # tiktoken reads it too, so the code that counts asks the environment itself.
    tiktoken_cache_dir: str = setting("", "Folder with tiktoken's files; only read.")
    embedded_context_window: int = setting(8192, "Window of the embedded model.", unit="tokens")
    local_model_gguf: str = setting("", "File of the model that `manage.py local_model` serves.")


class ChatappSettings(SettingsGroup):
    """CHATAPP with its defaults."""

    models: Mapping[str, Mapping[str, Any]] = setting(
        dict, "The models by alias; sessions that name none use `default`.", variable=None
    )
    context: Mapping[str, Any] = setting(
        lambda: {"BACKEND": "chatapp.context.backend.FullHistoryBackend", "OPTIONS": {}},
        "What decides which messages a request holds.",
        variable=None,
    )
    encodings_dir: Path = setting(
        Path("var/encodings"), "Folder of tiktoken's files.", variable=None
    )
    token_counter: str = setting("auto", "`auto`, `estimate`, `chars4`, or `tiktoken:ENCODING`.")
    max_message_chars: int = setting(
        2_000_000,
        "Longest message: its text, calls, names and own fields.",
        unit="characters",
        minimum=1,
    )
    max_part_chars: int = setting(
        15_000_000,
        "Longest JSON of a message's parts beside their text: images, files, recordings.",
        unit="characters",
        minimum=1,
    )
    part_storage_bytes: int = setting(
        262_144,
        "Longest text in a part (base64, a data URL, JSON) that stays in the database; what is "
        "longer goes into a file of the part store. `0`: everything stays.",
        unit="bytes",
        minimum=0,
    )
    max_answer_chars: int = setting(
        2_000_000,
        "Longest answer that is read of a model; what is longer is cut.",
        unit="characters",
        minimum=1,
    )
    max_messages_per_request: int = setting(
        500, "Most messages appended by one request.", unit="messages", minimum=1
    )
    max_body_bytes: int = setting(20_000_000, "Largest request body.", unit="bytes", minimum=1)
    max_import_bytes: int = setting(
        50_000_000, "Largest transcript file by API.", unit="bytes", minimum=1
    )
    max_import_lines: int = setting(
        200_000, "Most lines of a transcript file by API, or items of the list.", minimum=1
    )
    max_import_conversations: int = setting(
        50_000, "Most conversations of a transcript file by API.", minimum=1
    )
    import_seconds: int = setting(
        20,
        "How long a request works at a file; what is left is done in the background.",
        unit="seconds",
        minimum=1,
    )
    import_at_once_bytes: int = setting(
        5_000_000,
        "Largest file that a request imports itself; larger ones are done in the background.",
        unit="bytes",
        minimum=1,
    )
    import_at_once_conversations: int = setting(
        200,
        "Most conversations of a file that a request imports itself; more are stored in the "
        "background.",
        minimum=1,
    )
    import_background_seconds: int = setting(
        3_600,
        "How long workers may work at one file, all together.",
        unit="seconds",
        minimum=1,
    )
    imports_per_owner: int = setting(
        4, "Imports of one owner waiting or under way at once; further ones get 429.", minimum=1
    )
    max_page_bytes: int = setting(
        8_000_000,
        "Texts and JSON that a page of messages holds; it ends before what would be more, and has "
        "one message at least.",
        unit="bytes",
        minimum=1,
    )
    turn_seconds: int = setting(
        300, "Time budget of a turn, retries included.", unit="seconds", minimum=1
    )
    model_timeout_seconds: int = setting(
        120, "Longest wait for one model call.", unit="seconds", minimum=1
    )
    model_connections: int = setting(
        96,
        "Open connections to model servers that a process keeps between calls, for all its threads "
        "and servers together.",
        minimum=1,
    )
    turns_per_owner: int = setting(
        8,
        "Turns of one owner under way at once, and as many compactions that are waited for; "
        "further ones get 429.",
        minimum=1,
    )
    request_threads: int = setting(
        64, "Requests answered at once in one process; further ones wait.", minimum=1
    )
    slow_threads: int = setting(
        64,
        "Requests at once in one process that wait for a model, or read or write a file: turns "
        "that are not streamed, compactions that are waited for, imports, exports.",
        minimum=1,
    )
    stream_threads: int = setting(32, "Streamed turns at once in one process.", minimum=1)
    heartbeat_seconds: int = setting(
        15, "A silent stream sends a comment this often.", unit="seconds", minimum=1
    )
    formats: Mapping[str, str] = setting(
        dict, "Transcript formats of plug-ins: name and dotted path of a `Format`.", variable=None
    )
    overflow_wordings: Pieces = setting(
        (),
        "Comma-separated pieces of error texts that also mean: the request is too large.",
    )


chatapp_settings = lazy_settings("CHATAPP", ChatappSettings)

# Classes that a BACKEND may name by an older path, for one version more (chatapp.W002).
MOVED_BACKENDS = {
    "chatapp.llm.client.OpenAIModel": "chatapp.llm.openai_client.OpenAIModel",
    "chatapp.context.FullHistoryBackend": "chatapp.context.backend.FullHistoryBackend",
}


def backend_path(path: str) -> str:
    """Return the dotted path of today for the one that a BACKEND names."""
    return MOVED_BACKENDS.get(path, path)


def on_sqlite(database: Mapping[str, Any]) -> bool:
    """Whether a database's settings are those of a file."""
    return bool(database["ENGINE"] == "django.db.backends.sqlite3")


def local_secret_key(data_dir: Path) -> str:
    """Return the key in `data_dir`/secret_key, making the file (mode 600) where it is missing.

    Two processes that start at once agree on one key: a finished file is linked into place, which
    fails for the second one.
    """
    path = data_dir / "secret_key"
    if not path.exists():
        draft = data_dir / f"secret_key.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(50))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text().strip()


def logging_settings(*, line_format: str, level: str) -> dict[str, Any]:
    """Return the value of LOGGING."""
    loggers: dict[str, dict[str, Any]] = {
        "django-q": {"level": "WARNING", "propagate": True},
        "httpx2": {"level": "WARNING", "propagate": True},
        # Tells of every client that goes away in the middle of a stream.
        "asyncio": {"level": "ERROR", "propagate": True},
    }
    formatter: dict[str, Any] = {
        "format": "{asctime} {levelname} {name}: {message}",
        "style": "{",
    }
    if line_format == "json":
        formatter = _json_formatter()
        # The web server writes lines of its own, which a reader of JSON could not read.
        own = {"handlers": [], "propagate": True}
        loggers |= {"uvicorn": own, "uvicorn.access": own}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"chosen": formatter},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "chosen"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": loggers,
    }


def _json_formatter() -> dict[str, Any]:
    """One JSON object a record: level, logger, message, the record's own fields, time in UTC."""
    from pythonjsonlogger.core import RESERVED_ATTRS

    return {
        "()": "pythonjsonlogger.json.JsonFormatter",
        "fmt": "{levelname} {name} {message}",
        "style": "{",
        "rename_fields": {"levelname": "level", "name": "logger"},
        # Objects and colours that frameworks hang on their records; a request's text holds its
        # query.
        "reserved_attrs": [*RESERVED_ATTRS, "request", "color_message"],
        "timestamp": "time",
    }

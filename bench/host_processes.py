"""Starts Stitchwork as `make run` does, and tracks its processes."""

from __future__ import annotations

import ctypes
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from web_client import Unexpected

from verifier.devices.cuda_driver import Nvml, driver, facts

ROOT = Path(__file__).resolve().parent.parent
PR_SET_CHILD_SUBREAPER = 36
STOP_SECONDS = 60.0
GONE_SECONDS = 5.0  # maximum seconds until the last process has left the process table
LOG_CHARACTERS = 3000  # number of characters shown from each log after a failure
FORGOTTEN = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "CSRF_TRUSTED_ORIGINS", "HTTPS", "BASE_URL", "HOST_INTERFACE")  # of the caller; removed


class Host:
    """The host's processes. Everything that the supervisor starts becomes our child when its parent ends, so no leftover process can go unnoticed."""

    def __init__(self, data: Path, device: str):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.data, self.device = data, device
        self.process: subprocess.Popen[bytes] | None = None
        self.nvml = Nvml(facts(int(device.partition(":")[2] or 0)).uuid) if device.startswith("cuda") and driver() is not None else None
        self.free_before = self.gpu_memory()

    def gpu_memory(self) -> int | None:
        """Returns the number of free bytes on the GPU, or None on the CPU."""
        return self.nvml.free_bytes() if self.nvml is not None else None

    def start(self, patience: float) -> str:
        """Starts everything and returns the one-time sign-in link that the supervisor prints when it is ready."""
        self.data.mkdir(mode=0o700, parents=True)
        kept = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = kept | {
            "DATA_DIR": str(self.data),
            "PORT": str(port),
            "STITCHWORK_DEVICES": self.device,
            "STITCHWORK_DIE_WITH_PARENT": "1",
        }
        with (self.data.parent / "supervisor.err").open("wb") as errors:
            command = [sys.executable, "-m", "webapp.supervisor"]
            nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
            self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=nothing, stdout=pipe, stderr=errors)
        line = self._first_line(patience)
        ready = re.fullmatch(r"ready: (http://\S+)", line)
        if ready is None:
            raise Unexpected(f"the supervisor did not come up within {patience:.0f} s; it said {line!r}")
        return ready[1]

    def _first_line(self, patience: float) -> str:
        assert self.process is not None and self.process.stdout is not None
        said = b""
        deadline = time.monotonic() + patience
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in said and (wait := deadline - time.monotonic()) > 0:
                if selector.select(wait):
                    part = os.read(self.process.stdout.fileno(), 4096)
                    if not part:
                        break
                    said += part
        return said.decode(errors="replace").partition("\n")[0]

    def check_alive(self) -> None:
        if self.process is None or self.process.poll() is not None:
            raise Unexpected("the supervisor has ended")

    def roles(self) -> list[str]:
        """Returns the processes under the supervisor, by their command lines without paths. Raises an error if one of the four is missing."""
        assert self.process is not None
        tree = processes()
        found = []
        for pid in sorted(below(self.process.pid, tree)):
            words = tree[pid][1]
            if words[0].endswith("/postgres") and "-D" in words:
                found.append("postgres")
            elif "daphne" in words:
                found.append("daphne webapp.asgi")
            elif any(word.endswith("manage.py") for word in words):
                at = next(index for index, word in enumerate(words) if word.endswith("manage.py"))
                found.append("manage.py " + " ".join(words[at + 1 :]))
        wanted = {"postgres", "daphne webapp.asgi", "manage.py orchestrator", f"manage.py verifier --device {self.device}"}
        if lacking := wanted - set(found):
            raise Unexpected(f"not running: {', '.join(sorted(lacking))}")
        return found

    def stop(self) -> list[str]:
        """Stops everything as Ctrl-C does. Returns the processes that were left over, after killing those too."""
        if self.process is None:
            return []
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        late = []
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            late = [f"the supervisor, {STOP_SECONDS:.0f} s after it was asked to stop"]
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + GONE_SECONDS
        while (tree := self._ours()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in tree:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return late + [" ".join(os.path.basename(word) for word in words[:6]) for words in tree.values()]

    def _ours(self) -> dict[int, list[str]]:
        """Returns the processes below this one that are still running."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        tree = processes()
        return {pid: tree[pid][1] for pid in below(os.getpid(), tree)}

    def logs(self) -> str:
        files = [self.data.parent / "supervisor.err", *sorted((self.data / "log").glob("*.log"))]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-LOG_CHARACTERS:]}" for file in files if file.exists())


def processes() -> dict[int, tuple[int, list[str]]]:
    """Returns the parent and command line of every live process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            words = (folder / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if state != "Z":
            found[int(folder.name)] = (int(parent), words)
    return found


def below(ancestor: int, tree: dict[int, tuple[int, list[str]]]) -> set[int]:
    family, grew = {ancestor}, True
    while grew:
        more = {pid for pid, (parent, _) in tree.items() if parent in family} - family
        grew, family = bool(more), family | more
    return family - {ancestor}

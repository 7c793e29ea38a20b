"""Confinement of a party: bubblewrap where it is installed, else a process with limits, which is said wherever a result is shown."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verifier import cgroup, landlock, seccomp
from verifier.channel import Channel, pair
from verifier.devices.base import Bind
from verifier.limits import Limits

if TYPE_CHECKING:  # the first parties of a judge are started before it has pydantic
    from verifier.report import Protection

PACKAGE = Path(__file__).resolve().parent
INSIDE = "/opt/stitchwork"  # where a sandbox shows the package `verifier`, and nothing else of the checkout
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
# What a party without namespaces reads beside the interpreter: the machine's shape, and nothing of another process.
MACHINE = (
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys/kernel", "/proc/sys/vm"),
    *("/proc/driver", "/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/kernel/mm"),
)
NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); import verifier.party as party; sys.path.pop(0); party.main(sys.argv[2])"

# The same heap behaviour in every party, from its first call on. glibc adapts its thresholds to the history of a process, and its memalign takes
# fresh pages for a dozen calls before it reuses freed ones: a call that faults in 16 MiB took 4 to 35 ms here instead of 1. So thresholds are
# fixed, and each party starts with a heap whose pages it has touched (`party.grow_heap`).
HEAP = 256 << 20
GUARD_SECONDS = 0.2
SURVIVAL = 30.0  # seconds after SIGKILL; what is there then is held by a driver, and the device cannot be trusted
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1"


@cache
def bubblewrap() -> str:
    """Its path where it works here, else empty."""
    path = shutil.which("bwrap") or ""
    if not path:
        return ""
    probe = [path, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", *_system_binds(), "--proc", "/proc", "--dev", "/dev", "/usr/bin/true"]
    try:
        return path if subprocess.run(probe, capture_output=True, timeout=10).returncode == 0 else ""
    except (OSError, subprocess.SubprocessError):
        return ""


def _system_binds() -> list[str]:
    arguments: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    for path in SYSTEM_FILES:
        arguments += ["--ro-bind-try", path, path]
    return arguments


@cache
def _sealed_proc() -> list[str]:
    """Of a party's /proc only its own processes can be written to, which the CUDA driver does in each of them when it starts. All else that is
    writable is sealed here: bubblewrap leaves it to root, whose files they are, also without a capability."""
    arguments: list[str] = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.is_symlink() or entry.name.isdecimal():
            continue
        inside = (os.path.join(folder, name) for folder, _, names in os.walk(entry.path) for name in names) if entry.is_dir() else [entry.path]
        if any(_writable(path) for path in inside):
            arguments += ["--ro-bind-try", entry.path, entry.path]
    return arguments


def _writable(path: str) -> bool:
    try:
        return bool(os.lstat(path).st_mode & 0o222)
    except OSError:
        return False


@cache
def interpreter_folders() -> tuple[str, ...]:
    """What the interpreter and its packages need to be seen: real prefix, virtual environment, site-packages; parents before children."""
    paths = sysconfig.get_paths()
    candidates = {sys.base_prefix, sys.base_exec_prefix, sys.prefix, paths["purelib"], paths["platlib"], paths["stdlib"], paths["platstdlib"]}
    candidates |= {os.path.dirname(os.path.realpath(sys.executable))}
    candidates |= {folder for folder in [*site.getsitepackages(), *sys.path] if os.path.basename(folder) in ("site-packages", "dist-packages")}
    candidates |= {os.path.realpath(folder) for folder in candidates}
    kept: list[str] = []
    for folder in sorted(candidates, key=len):
        covered = any(folder == other or folder.startswith(other + "/") for other in (*kept, *SYSTEM))
        if os.path.isdir(folder) and folder != "/" and not covered:
            kept.append(folder)
    return tuple(kept)


@cache
def path_folders() -> tuple[str, ...]:
    """Folders of PYTHONPATH that hold packages which a party needs; never a checkout. `python -I` leaves them out, so a party is told."""
    folders = [os.path.realpath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return tuple(
        f for f in folders if any(os.path.isdir(os.path.join(f, name)) for name in ("torch", "numpy", "pydantic")) and f != str(PACKAGE.parent)
    )


def import_path() -> list[str]:
    """Where a party finds the package `verifier`, and then what PYTHONPATH adds."""
    wrap = bool(bubblewrap())
    added = [f"{INSIDE}/path{index}" if wrap else folder for index, folder in enumerate(path_folders())]
    return [INSIDE if wrap else str(PACKAGE.parent), *added]


_failed: dict[str, str] = {}  # layers that this host offers and that a party could not put on, with the error


def layer_failed(layer: str, error: str) -> None:
    """A party said, before any stranger's source ran in it, that it could not put a layer on: reports name it as missing from now on."""
    _failed[layer] = error[:200]


def protection() -> Protection:
    """What confines a party on this host."""
    from verifier.report import Protection

    layers: list[str] = []
    missing: list[str] = []
    wrapped = bool(bubblewrap())
    if wrapped:
        layers += ["user, mount, pid, ipc, uts and network namespaces", "read-only minimal file system", "private /tmp", "no capabilities"]
    else:
        how = "bubblewrap is installed, but user namespaces are refused" if shutil.which("bwrap") else "install bubblewrap (apt install bubblewrap)"
        missing += [f"namespaces (files and processes of this user can be seen): {how}"]
        layers += ["own session"]
    layers += ["cleared environment"]
    (layers if seccomp.supported() else missing).append("seccomp" if seccomp.supported() else "seccomp: this processor architecture has no filter")
    if not landlock.supported():
        missing.append(landlock.lack())
    elif "landlock" in _failed:
        missing.append(f"Landlock: the kernel has it, and refused the rules ({_failed['landlock']})")
    else:
        layers.append(landlock.layer())
    kind = cgroup.version()
    (layers if kind else missing).append(cgroup.layer() if kind else cgroup.lack())
    layers += ["rlimits", *([] if kind else ["memory and processes counted by the judge"]), "time limits"]
    return Protection(sandbox="bubblewrap" if wrapped else "process", layers=layers, missing=missing)


@dataclass
class Spawned:
    """A confined process: its channel, what it printed (cut), and the means to end all of it."""

    process: subprocess.Popen[bytes]
    channel: Channel
    limits: Limits
    group: cgroup.Cgroup | None
    folder: str  # private folder of a party without namespaces
    wrapped: bool
    printed: bytearray = field(default_factory=bytearray)
    total: int = 0
    flooded: bool = False
    drain: threading.Thread | None = None
    over: Literal["", "memory", "processes"] = ""  # what it took too much of, where no cgroup stands guard
    ended: bool = False

    def start_drain(self) -> None:
        self.drain = threading.Thread(target=self._drain, daemon=True)
        self.drain.start()
        if self.group is None:
            threading.Thread(target=self._guard, daemon=True).start()

    def _guard(self) -> None:
        """Without a cgroup: root's processes are under no limit of number, and CUDA's under none of memory. Looks now and then."""
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.ended and self.process.poll() is None:
            family = _family(self.process.pid)
            resident = 0
            for pid in family:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    _, all_pages, file_pages = Path(f"/proc/{pid}/statm").read_text().split()[:3]
                    resident += (int(all_pages) - int(file_pages)) * page  # CUDA's libraries alone are gigabytes
            if resident > self.limits.memory or len(family) > self.limits.processes:
                self.over = "memory" if resident > self.limits.memory else "processes"
                self.kill()
                return
            time.sleep(GUARD_SECONDS)

    def _drain(self) -> None:
        """Reads what the party prints so that it never blocks, and keeps the last of it."""
        assert self.process.stdout is not None
        keep = self.limits.output
        fd = self.process.stdout.fileno()
        while True:
            try:
                part = os.read(fd, 65536)
            except OSError:
                return
            if not part:
                return
            self.total += len(part)
            self.printed += part
            if len(self.printed) > 2 * keep:
                del self.printed[: len(self.printed) - keep]
            if self.total > self.limits.output_flood and not self.flooded:
                self.flooded = True
                self.kill()

    def text(self) -> str:
        """The last of what was printed, at most `limits.output` bytes."""
        if self.drain is not None and self.ended:
            self.drain.join(timeout=1)
        return bytes(self.printed[-self.limits.output :]).decode(errors="replace")

    def freeze(self) -> None:
        """Everything that belongs to the party stands still, until `thaw` or its end."""
        self._still(True)

    def thaw(self) -> None:
        self._still(False)

    def _still(self, frozen: bool) -> None:
        if self.ended or (self.group is not None and self.group.freeze(frozen)):
            return
        for pid in self.group.pids() if self.group is not None else _family(self.process.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to everything that belongs to the party; safe from any thread, and more than once."""
        family = _family(self.process.pid) if self.group is None and not self.wrapped else []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.group is not None:
            self.group.kill()
        with contextlib.suppress(OSError):
            self.process.kill()
        for pid in family:  # what left the session; a namespace ends as a whole
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Kills what is left, frees everything, and returns the exit status (negative: a signal). What does not die is remembered (`survivors`)."""
        if self.ended:
            return self.process.returncode
        status = self.process.poll()
        family = self.group.pids() if self.group is not None else _family(self.process.pid)
        self.kill()
        deadline = time.monotonic() + SURVIVAL
        with contextlib.suppress(subprocess.TimeoutExpired):
            wait(self.process, SURVIVAL)
        left = self._left(family)
        while left and time.monotonic() < deadline:
            time.sleep(0.01)
            self.kill()
            left = self._left(family)
        _unkillable.update(left)
        self.ended = True
        if self.drain is not None:
            self.drain.join(timeout=2)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.channel.close()
        if self.group is not None:
            self.group.remove()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        return status if status is not None else self.process.returncode

    def _left(self, family: list[int]) -> list[int]:
        return self.group.pids() if self.group is not None else [pid for pid in family if _alive(pid)]

    def cpu_ns(self) -> int | None:
        """Processor time of everything in the party up to now, in nanoseconds; null where the host does not tell."""
        if self.group is not None and (used := self.group.cpu_ns()) is not None:
            return used
        total = 0
        for pid in _family(self.process.pid):
            with contextlib.suppress(OSError):
                total += time.clock_gettime_ns((~pid << 3) | 2)  # the CPU-time clock of another process, as clock_getcpuclockid(3) makes it
        return total

    def exit_status(self, seconds: float = 2.0) -> int | None:
        """The status with which the party ended by itself (128 + n or negative for signal n), or null."""
        try:
            return wait(self.process, seconds)
        except subprocess.TimeoutExpired:
            return None


def _rules(wrapped: bool, home: str, binds: list[Bind], writable: list[Bind], inward: bool) -> dict[str, Any] | None:
    """Landlock's rules for a party: what its sandbox shows and no more; without namespaces they are all that keeps it from other files."""
    if not landlock.supported():
        return None
    read = [*SYSTEM, *SYSTEM_FILES, *interpreter_folders(), *import_path()[1:]]
    if wrapped:
        read += [INSIDE, "/proc", *(bind.target for bind in binds if not bind.device)]
        write, device = [home, "/dev/shm", *(bind.target for bind in writable)], ["/dev"]  # its /dev holds only its own nodes
        update = ["/proc"]  # only its own processes are there, and all else is sealed; a rule for /proc/self would not hold for its children
    else:
        read += [str(PACKAGE), *MACHINE, *(bind.source for bind in binds if not bind.device)]
        write, device = [home, "/dev/shm", *(bind.source for bind in writable)], [*NODES, *(bind.source for bind in binds if bind.device)]
        update = ["/proc/self"]
    return {"read": read, "write": write, "device": device, "update": update, "inward": inward}


def wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    """As `Popen.wait`, which sleeps up to 50 ms beyond a process's end. Raises `subprocess.TimeoutExpired`."""
    if process.poll() is None:
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:  # Linux before 5.3, or a sandbox that forbids it
            return process.wait(timeout=seconds)
        try:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll(seconds * 1000)
        finally:
            os.close(fd)
    return process.wait(timeout=0)


_unkillable: set[int] = set()


def survivors() -> list[int]:
    """Processes of ended parties that are still there."""
    _unkillable.intersection_update({pid for pid in _unkillable if _alive(pid)})
    return sorted(_unkillable)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _family(pid: int) -> list[int]:
    """A process and its descendants, for hosts without cgroups."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                found += [int(child) for child in Path(f"/proc/{parent}/task/{thread}/children").read_text().split()]
    return found


def spawn(
    limits: Limits,
    binds: list[Bind],
    variables: dict[str, str],
    data_limit: bool,
    prefix: list[str] | None = None,
    writable: list[Bind] | None = None,
    bare: bool = False,
    extensions: bool = True,
    early: dict[str, Any] | None = None,
) -> Spawned:
    """Starts a party. `data_limit` puts a ceiling on private memory, so that an allocation fails where it stands in the source (not with CUDA,
    which reserves address space). `prefix` is a profiler's command line inside the sandbox. `bare`: a party that imports no torch;
    `extensions`: one that also imports what builds extensions; `early`: what of its device comes up while it imports. Raises `OSError`."""
    ours, theirs = pair()
    wrap = bubblewrap()
    group = cgroup.Cgroup.create(cgroup.version(), limits.memory, limits.processes) if cgroup.version() else None  # type: ignore[arg-type]
    folder = "" if wrap else tempfile.mkdtemp(prefix="stitch-party-")
    home = "/tmp" if wrap else folder
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "GLIBC_TUNABLES": ALLOCATOR,
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "USER": "party",  # the sandbox has no passwd file, and torch asks who this is
        "LOGNAME": "party",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        **variables,
    }
    rlimits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": limits.file, "RLIMIT_NOFILE": 4096}
    if data_limit:
        rlimits["RLIMIT_DATA"] = int(limits.memory * 0.9)
    if os.getuid() != 0:
        rlimits["RLIMIT_NPROC"] = limits.processes + 4096  # counted for the whole user: only a ceiling against fork bombs
    boot = {
        "fd": theirs.fileno(),
        "rlimits": rlimits,
        "seccomp": not wrap and seccomp.supported(),
        "home": home,
        "parent": 0 if wrap else os.getpid(),
        "path": import_path()[1:],
        "heap": HEAP if data_limit and not bare else 0,
        "torch": not bare,
        "extensions": extensions,
        "early": early,
        "landlock": _rules(bool(wrap), home, binds, writable or [], inward=prefix is None),
    }
    python = [sys.executable, "-I", "-c", BOOT]
    keep = [theirs.fileno()]
    filter_fd = -1
    if wrap:
        argv = [wrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
        for name, value in environment.items():
            argv += ["--setenv", name, value]
        argv += _system_binds()
        # Before the interpreter: its folders may themselves lie under /tmp.
        argv += ["--perms", "1777", "--size", str(limits.temporary), "--tmpfs", "/tmp"]
        for path in interpreter_folders():
            argv += ["--ro-bind", path, path]
        argv += ["--ro-bind", str(PACKAGE), f"{INSIDE}/verifier", "--proc", "/proc", *_sealed_proc(), "--dev", "/dev"]
        for source, target in zip(path_folders(), import_path()[1:], strict=True):
            argv += ["--ro-bind", source, target]
        for bind in binds:
            option = ("--dev-bind" if bind.device else "--ro-bind") + ("-try" if bind.optional else "")
            argv += [option, bind.source, bind.target]
        for bind in writable or []:
            argv += ["--bind", bind.source, bind.target]
        # The root and /dev are file systems of bubblewrap's own, without a limit of size: nobody writes there.
        argv += ["--perms", "1777", "--size", str(limits.temporary), "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/"]
        if seccomp.supported():
            filter_fd = os.memfd_create("seccomp", 0)
            os.write(filter_fd, seccomp.program(loopback=prefix is not None))  # nsys cannot do without TCP to itself
            os.lseek(filter_fd, 0, os.SEEK_SET)
            keep.append(filter_fd)
            argv += ["--seccomp", str(filter_fd)]
        argv += ["--chdir", "/tmp", "--", *(prefix or []), *python, INSIDE, json.dumps(boot)]
    else:
        argv = [*(prefix or []), *python, str(PACKAGE.parent), json.dumps(boot)]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=keep,
            env={} if wrap else environment,
            cwd="/" if wrap else folder,
            start_new_session=True,
            preexec_fn=group.enter if group is not None else None,
        )
    except OSError:
        if group is not None:
            group.remove()
        ours.close()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        theirs.close()
        if filter_fd >= 0:
            os.close(filter_fd)
    spawned = Spawned(process, Channel(ours), limits, group, folder, bool(wrap))
    spawned.start_drain()
    return spawned


_DUMPED = re.compile(r'File "[^"]*/(task|program)\.py", line (\d+) in (\S+)')


def hang_line(text: str, source: str) -> int | None:
    """Where a party stood when its own watchdog wrote its stack: the innermost line of `source` ("task" or "program")."""
    at = text.rfind("Timeout (")
    if at < 0:
        return None
    for module, line, _ in _DUMPED.findall(text[at:]):
        if module == source:
            return int(line)
    return None

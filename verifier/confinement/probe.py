"""Tests whether this host can confine an untrusted source. If it cannot, explains how to fix that.

The probe fails closed: if bubblewrap does not work, or does not answer in time, no untrusted source runs. A result is valid for only a few seconds,
not for the life of a process, because a host may be busy or may soon be set up correctly. `SANDBOX=none` (`--no-sandbox`) is the only way to bypass
the probe, and every result records that it was used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
SECONDS = 60.0  # timeout for a process that does nothing; a longer wait counts as no answer
AGAIN = 5.0  # seconds after which a failed probe is repeated
CHOICE = "SANDBOX"
_EXTRA = "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict"  # installation path in the package; the profile is not loaded there
PROFILE = f"apt-get install apparmor-profiles && ln -s {_EXTRA} /etc/apparmor.d/ && systemctl reload apparmor"
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_CLONE, _MOST = Path("/proc/sys/kernel/unprivileged_userns_clone"), Path("/proc/sys/user/max_user_namespaces")


class NoSandbox(OSError):
    """Raised when no untrusted source may run on this host. The message explains what to do."""


@dataclass(frozen=True)
class Probe:
    """The result of a probe: the `path` of bubblewrap if it works; otherwise, the reason (`why`) that it does not."""

    path: str = ""
    why: str = ""


_lock = threading.Lock()
_last: tuple[float, Probe] | None = None


def waived() -> bool:
    """Returns whether an operator has waived the sandbox on this host."""
    return os.environ.get(CHOICE) == "none"


def probe() -> Probe:
    """Returns the last result; a failed result is at most `AGAIN` seconds old."""
    global _last
    if waived():
        return Probe(why=f"{CHOICE}=none: switched off by whoever started this")
    with _lock:
        if _last is None or (not _last[1].path and time.monotonic() - _last[0] > AGAIN):
            found = look()
            _last = (time.monotonic(), found)
        return _last[1]


def look() -> Probe:
    """Runs bubblewrap and reports whether it works."""
    path = shutil.which("bwrap") or ""
    if not path:
        return Probe(why="bubblewrap is not installed: apt-get install bubblewrap")
    command = [path, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", *system_binds(), "--proc", "/proc", "--dev", "/dev", "/usr/bin/true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Probe(why=f"bubblewrap did not begin within {SECONDS:.0f} s: the host is too busy to say whether it works")
    except OSError as error:
        return Probe(why=f"bubblewrap cannot be started: {error.strerror}")
    return Probe(path=path) if done.returncode == 0 else Probe(why=refusal(done.stderr))


def refusal(printed: str) -> str:
    """Explains why bubblewrap does not work on this host and how to make it work."""
    said = (printed.strip().splitlines() or ["without a word"])[0][:200]
    if contained():
        fix = "start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
    elif _reads(_APPARMOR) == "1":
        fix = f"sysctl kernel.apparmor_restrict_unprivileged_userns=0, or Ubuntu's AppArmor profile for bwrap alone: {PROFILE}"
    elif _reads(_CLONE) == "0":
        fix = "sysctl kernel.unprivileged_userns_clone=1"
    elif _reads(_MOST) == "0":
        fix = "sysctl user.max_user_namespaces=10000"
    else:
        fix = "allow user namespaces"
    return f"bubblewrap is installed but does not work ({said}): {fix}"


def contained() -> bool:
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def _reads(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def required() -> str:
    """Returns bubblewrap's path, or "" if an operator has waived the sandbox. Raises `NoSandbox`."""
    found = probe()
    if found.path or waived():
        return found.path
    raise NoSandbox(
        f"there is no sandbox on this host, so no stranger's source runs here: {found.why}; for sources that you trust, on a machine of your own: "
        f"{CHOICE}=none, or --no-sandbox"
    )


def system_binds() -> list[str]:
    """Returns the bubblewrap arguments that expose the system's own files."""
    arguments: list[str] = []
    for path in SYSTEM:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    for path in SYSTEM_FILES:
        arguments += ["--ro-bind-try", path, path]
    return arguments

"""Confines a party in bubblewrap. If an operator has waived the sandbox, the party is a plain process with limits, and every result says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verifier.channel import Channel, pair
from verifier.confinement import cgroup, seccomp
from verifier.confinement.probe import required, system_binds
from verifier.confinement.spawned import Spawned
from verifier.confinement.visible import INSIDE, PACKAGE, import_path, interpreter_folders, path_folders, rules, sealed_proc
from verifier.devices.base import Bind
from verifier.limits import Limits
from verifier.startup import bytecode, cutlass

BOOT = "import sys; sys.path.insert(0, sys.argv[1]); import verifier.parties.party as party; sys.path.pop(0); party.main(sys.argv[2])"

# Makes the heap behave the same in every party from the first call. glibc adapts its thresholds to the history of a process, and its memalign takes
# fresh pages for about a dozen calls before it reuses freed ones. A call that faults in 16 MiB took 4 to 35 ms here instead of 1 ms. Therefore, the
# thresholds are fixed, and each party touches the pages of its heap when it starts (`party.grow_heap`).
HEAP = 256 << 20
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1"


@dataclass(frozen=True)
class PartySpec:
    """Everything that is needed to start a party, except its role, which the party receives later."""

    limits: Limits
    binds: Sequence[Bind] = ()  # paths that this party reads, in addition to the paths that every party reads
    writable: Sequence[Bind] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    # A ceiling on private memory, which makes an excessive allocation fail at its line in the source. Not used with CUDA, because CUDA reserves
    # address space.
    data_limit: bool = False
    prefix: Sequence[str] = ()  # a profiler's command line, which runs inside the sandbox
    bare: bool = False  # imports no torch
    extensions: bool = True  # also imports the modules that build extensions
    early: bool = False  # initialises its device while it imports
    placed: bool = False  # the judge binds the party to processors; otherwise, without bubblewrap, the party can choose them itself
    permit: int | None = None  # the descriptor of a `verifier.parties.permit.Permit`, which the party needs before it touches a device


def spawn(spec: PartySpec) -> Spawned:
    """Starts a party. Raises `OSError`, or `NoSandbox` if the host cannot confine a party."""
    spec = replace(spec, binds=[*spec.binds, *bytecode.bind(), *cutlass.bind()])
    wrap = required()
    ours, theirs = pair()
    group = cgroup.Cgroup.create(version, spec.limits.memory, spec.limits.processes) if (version := cgroup.version()) else None
    folder = "" if wrap else tempfile.mkdtemp(prefix="stitch-party-")
    home = "/tmp" if wrap else folder
    environment = _environment(home, {**cutlass.variables(bool(wrap)), **spec.variables})
    boot = json.dumps(_boot(spec, theirs.fileno(), wrap, home))
    python = [sys.executable, "-I", *bytecode.party_options(bool(wrap))]
    command = [*spec.prefix, *python, "-c", BOOT, INSIDE if wrap else str(PACKAGE.parent), boot]
    filters: list[int] = []
    if wrap:
        arguments = _wrapping(wrap, environment, spec)
        if seccomp.supported():
            filters.append(_filter(loopback=bool(spec.prefix)))  # nsys connects to itself over TCP
            arguments += ["--seccomp", str(filters[0])]
        command = [*arguments, "--chdir", "/tmp", "--", *command]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno(), *filters, *([] if spec.permit is None else [spec.permit])],
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
        for fd in filters:
            os.close(fd)
    spawned = Spawned(process, Channel(ours), spec.limits, group, folder, bool(wrap))
    spawned.start_drain()
    return spawned


def _boot(spec: PartySpec, fd: int, wrap: str, home: str) -> dict[str, Any]:
    """Returns the first message that the party reads (`verifier.parties.party.main`). The message specifies the party's channel, limits
    and imports."""
    return {
        "fd": fd,
        "rlimits": _rlimits(spec.limits, spec.data_limit),
        "seccomp": not wrap and seccomp.supported(),
        "placed": spec.placed,
        "home": home,
        "parent": 0 if wrap else os.getpid(),
        "path": import_path()[1:],
        "heap": HEAP if spec.data_limit and not spec.bare else 0,
        "torch": not spec.bare,
        "extensions": spec.extensions,
        "early": spec.early,
        "permit": spec.permit,
        "landlock": rules(bool(wrap), home, list(spec.binds), list(spec.writable), inward=not spec.prefix),
    }


def _environment(home: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Returns a party's complete environment, which contains nothing from the judge's environment."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "GLIBC_TUNABLES": ALLOCATOR,
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "USER": "party",  # the sandbox has no passwd file, but torch looks up the user name
        "LOGNAME": "party",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        **variables,
    }


def _rlimits(limits: Limits, data_limit: bool) -> dict[str, int]:
    found = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": limits.file, "RLIMIT_NOFILE": 4096}
    if data_limit:
        found["RLIMIT_DATA"] = int(limits.memory * 0.9)
    if os.getuid() != 0:
        found["RLIMIT_NPROC"] = limits.processes + 4096  # the kernel counts processes for the whole user, so this only stops fork bombs
    return found


def _wrapping(wrap: str, environment: dict[str, str], spec: PartySpec) -> list[str]:
    """Returns the bubblewrap arguments that precede the seccomp filter. Binds are mounted in this order; later binds cover earlier ones."""
    argv = [wrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    for name, value in environment.items():
        argv += ["--setenv", name, value]
    argv += system_binds()
    # These come before the interpreter, whose folders may themselves be under /tmp.
    argv += ["--perms", "1777", "--size", str(spec.limits.temporary), "--tmpfs", "/tmp"]
    for path in interpreter_folders():
        argv += ["--ro-bind", path, path]
    argv += ["--ro-bind", str(PACKAGE), f"{INSIDE}/verifier", "--proc", "/proc", *sealed_proc(), "--dev", "/dev"]
    for source, target in zip(path_folders(), import_path()[1:], strict=True):
        argv += ["--ro-bind", source, target]
    for bind in spec.binds:
        option = ("--dev-bind" if bind.device else "--ro-bind") + ("-try" if bind.optional else "")
        argv += [option, bind.source, bind.target]
    for bind in spec.writable:
        argv += ["--bind", bind.source, bind.target]
    # The root and /dev are bubblewrap's own file systems. They have no size limit, so nobody is allowed to write to them.
    return [*argv, "--perms", "1777", "--size", str(spec.limits.temporary), "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/"]


def _filter(loopback: bool) -> int:
    """Returns a file that contains the seccomp filter for bubblewrap, positioned at its beginning. No code in the sandbox chooses processors. OpenMP
    would make the same choice for all sides, but it cannot see the machine's topology."""
    fd = os.memfd_create("seccomp", 0)
    os.write(fd, seccomp.program(loopback, placed=True))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd

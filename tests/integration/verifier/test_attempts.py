"""A hostile program's attempts from inside the sandbox, as real verifications without the static stage. None of them succeeds, as the host
confirms."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from probes import GROUPS, prober
from verifier_bench import PROGRAM

from verifier.confinement.visible import bubblewrap

pytestmark = [
    pytest.mark.skipif(not bubblewrap(), reason="bubblewrap is not installed: processes of this user are not hidden"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the attempts use system call numbers of x86-64"),
]
SECRET = f"planted-{uuid.uuid4().hex}"


@pytest.fixture
def host():
    """Creates things on the host that a party must not reach: listening sockets, a process with a secret, and a file outside its own /tmp."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        abstract = f"stitch-{uuid.uuid4().hex}"
        listeners = []
        for family, address in ((socket.AF_UNIX, "\0" + abstract), (socket.AF_UNIX, str(folder / "socket")), (socket.AF_INET, ("127.0.0.1", 0))):
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.bind(address)
            listener.listen()
            listener.setblocking(False)
            listeners.append(listener)
        victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, "SECRET": SECRET})
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        marker = f"stitch-{uuid.uuid4().hex}"
        outside = Path(tempfile.gettempdir(), marker + ".outside")
        outside.write_text(SECRET)
        stack.callback(outside.unlink)
        yield {
            "listeners": listeners,
            "victim": victim,
            "port": listeners[2].getsockname()[1],
            "abstract": abstract,
            "path": str(folder / "socket"),
            "marker": marker,
        }


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_nothing_that_a_program_tries_works(open_bench, host, group):
    open_bench.wait(open_bench.verifier.ready())
    judge = open_bench.verifier.judge_pid
    pids = [host["victim"].pid, judge, *parties(judge)]
    facts = {name: host[name] for name in ("port", "abstract", "path", "marker")}
    root = Path(__file__).resolve().parents[3]
    facts |= {"pids": pids, "secret": SECRET[::-1], "data": str(open_bench.verifier.data_dir), "root": str(root)}
    report = open_bench.verify(prober(PROGRAM, group, facts))
    assert report.status == "crashed" and "ValueError" in report.message, report.message
    found = re.search(r"worked (\[.*\]), refused (\d+)", report.message)
    assert found, report.message
    # In a checkout below /tmp, a party sees its own private /tmp around the package. The host's side is checked below.
    private = f" in {root}:" if root.is_relative_to("/tmp") else None
    worked = [attempt for attempt in json.loads(found[1]) if private is None or private not in attempt]
    assert not worked, worked
    assert int(found[2]) >= {"network": 25, "processes": 40, "files": 100, "kernel": 60}[group]
    # The host confirms that there is no connection, no signal and no written file, and that the judge is still the same.
    for listener in host["listeners"]:
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert Path(f"/proc/{host['victim'].pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    folders = ("/", "/usr", "/etc", "/dev", "/opt", "/var/tmp", "/run", sys.prefix, root)
    written = [path for folder in folders for path in Path(folder).glob(host["marker"] + "*")]
    assert written == []
    assert open_bench.verifier.judge_pid == judge and SECRET not in report.model_dump_json()
    assert open_bench.verify(PROGRAM.replace("dim=-1", "dim=0")).status == "wrong_result"


def test_the_attempts_do_work_outside(host, tmp_path):
    """Shows that the probes themselves work: on the host, without a sandbox, the harmless ones succeed."""
    facts = {"port": host["port"], "abstract": host["abstract"], "path": host["path"], "pids": [], "secret": ""}
    source = prober(PROGRAM, "network", facts).split("\nimport torch")[0] + "\nprobe()\n"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    for name in ("abstract socket of the host", "unix socket of the host", "TCP to the host", "socket family 2"):
        assert name in done.stderr, done.stderr


def test_every_layer_is_named(open_bench):
    protection = open_bench.verify(PROGRAM.replace("dim=-1", "dim=0")).protection
    text = " ".join([*protection.layers, *protection.missing])
    for layer in ("namespaces", "seccomp", "Landlock", "cgroup", "rlimits"):
        assert layer in text, layer


def parties(judge: int) -> list[int]:
    """Confined processes of a judge, other than the party that makes the attempt."""
    tree: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            tree.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = [judge]
    for pid in found:
        found += tree.get(pid, [])
    return found[1:]

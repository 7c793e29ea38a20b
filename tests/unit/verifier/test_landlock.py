"""Landlock's rules in a separate process, without a sandbox around it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from verifier.confinement import landlock

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not landlock.supported(), reason=landlock.lack() if not landlock.supported() else "")


def confined(rules: dict, body: str) -> dict:
    """Returns what `body` leaves in `seen`, in a process that has applied `rules` to itself. `tried(action)` is None if the action succeeded,
    otherwise the error's name."""
    source = f"""
import json, os, socket, signal, subprocess, sys
from verifier.confinement import landlock
landlock.restrict(json.loads(sys.argv[1]))
seen = {{}}
def tried(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
{textwrap.dedent(body)}
print(json.dumps(seen))
"""
    done = subprocess.run([sys.executable, "-c", source, json.dumps(rules)], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def usual(**more) -> dict:
    return {"read": ["/usr", "/lib", "/lib64", "/bin", "/etc", sys.prefix, sys.base_prefix, str(ROOT)], **more}


def test_reads_and_writes_only_where_it_may(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        (folder / "below").mkdir(parents=True)
        (folder / "file").write_text("x")
    seen = confined(
        usual(write=[str(mine)], read=["/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix, str(ROOT)]),
        f"""
        mine, other = {str(mine)!r}, {str(other)!r}
        seen["own write"] = tried(lambda: open(mine + "/new", "w").write("x"))
        seen["own rename between folders"] = tried(lambda: os.rename(mine + "/new", mine + "/below/new"))
        seen["own remove"] = tried(lambda: os.remove(mine + "/below/new"))
        seen["read"] = tried(lambda: open(other + "/file").read())
        seen["list"] = tried(lambda: os.listdir(other))
        seen["write"] = tried(lambda: open(other + "/new", "w"))
        seen["truncate"] = tried(lambda: os.truncate(other + "/file", 0))
        seen["remove"] = tried(lambda: os.remove(other + "/file"))
        seen["link"] = tried(lambda: os.link(other + "/file", mine + "/linked"))
        seen["passwd"] = tried(lambda: open("/etc/passwd").read())
        seen["child"] = subprocess.run(["cat", other + "/file"], capture_output=True).returncode
        """,
    )
    assert [seen.pop(name) for name in ("own write", "own rename between folders", "own remove")] == [None, None, None]
    assert seen.pop("child") != 0
    if landlock.abi() < 3:
        seen.pop("truncate")  # this kernel cannot restrict it
    assert None not in seen.values(), seen
    assert (other / "file").read_text() == "x"


def test_device_nodes_by_name(tmp_path):
    seen = confined(
        usual(device=["/dev/null"]),
        """
        seen["null"] = tried(lambda: open("/dev/null", "w").write("x"))
        seen["zero"] = tried(lambda: open("/dev/zero", "rb").read(1))
        """,
    )
    assert seen == {"null": None, "zero": "PermissionError"}


@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock rules no abstract sockets and signals")
def test_inward_means_no_tcp_no_abstract_socket_no_signal(tmp_path):
    import os
    import socket

    with socket.socket(socket.AF_UNIX) as listener, socket.socket() as tcp:
        listener.bind("\0stitch-landlock-test")
        listener.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        body = f"""
        seen["abstract"] = tried(lambda: socket.socket(socket.AF_UNIX).connect("\\0stitch-landlock-test"))
        seen["tcp"] = tried(lambda: socket.socket().connect(("127.0.0.1", {tcp.getsockname()[1]})))
        seen["bind"] = tried(lambda: socket.socket().bind(("127.0.0.1", 0)))
        seen["signal"] = tried(lambda: os.kill({os.getpid()}, 0))
        child = subprocess.Popen(["sleep", "30"])
        seen["own child"] = tried(lambda: child.kill())
        """
        seen = confined(usual(inward=True), body)
        assert seen.pop("own child") is None
        assert set(seen.values()) == {"PermissionError"}
        free = confined(usual(), body)
        assert {free[name] for name in ("abstract", "tcp", "bind", "signal")} == {None}


def test_paths_that_are_not_there_are_left_out():
    assert confined(usual(write=["/nowhere/at/all"]), "seen['ok'] = 1") == {"ok": 1}


def test_the_layer_has_a_name_and_a_lack_has_a_remedy():
    assert landlock.layer().startswith("Landlock") and "files" in landlock.layer()
    assert "Linux 5.19" in landlock.lack()

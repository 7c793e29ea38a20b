"""A secret in the environment of web, orchestrator, verifier and judge, and in the data directory: a task that searches for the secret does not find
it."""

from __future__ import annotations

import pytest

from tests.integration.processes.stack import Stack, prepared
from tests.integration.processes.test_kills import RIGHT, finished
from webapp.environment import socket_dir

pytestmark = pytest.mark.timeout(600)

SECRET = "sk-planted-9f1c77"

# The task's refusal reports its findings: that it searched, how far it got, and what it found.
NOSY = f"""import glob
import os
import socket
import sys

import torch
import torch.nn as nn

FOUND = []


def look():
    wanted = "".join(map(chr, {[ord(c) for c in SECRET]}))  # so that the source itself does not hold it
    for name, value in os.environ.items():
        if wanted in value:
            FOUND.append("environment " + name)
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + ["/proc/1/environ"]:
        try:
            if wanted.encode() in open(path, "rb").read():
                FOUND.append(path)
        except OSError:
            pass
    for top in ("DATADIR", "/root", "/home", "/work", "/tmp", "/etc", "/var", "/run"):
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if os.path.join(folder, name) != sys.prefix]  # gigabytes of libraries
            for file in files:
                path = os.path.join(folder, file)
                try:
                    if os.path.getsize(path) < 1000000 and wanted.encode() in open(path, "rb").read():
                        FOUND.append(path)
                except OSError:
                    pass
            if len(folder) > 200:
                break
    for path in ("DATADIR/pg-socket/.s.PGSQL.5432", "SOCKETS/.s.PGSQL.5432"):
        try:
            socket.socket(socket.AF_UNIX).connect(path)
            FOUND.append("database " + path)
        except OSError:
            pass
    try:
        socket.create_connection(("127.0.0.1", PORT), timeout=2)
        FOUND.append("web")
    except OSError:
        pass


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    look()
    raise RuntimeError("looked everywhere and found " + repr(FOUND))


def get_init_inputs():
    return []
"""


def test_a_task_finds_no_secret(tmp_path):
    stack = Stack(prepared(tmp_path / "data"), OPENAI_API_KEY=SECRET, STITCHWORK_PLANTED=SECRET)
    stack.data.mkdir(mode=0o700, exist_ok=True)
    (stack.data / "planted").write_text(SECRET)
    stack.start()
    try:
        person = stack.browser()
        task = NOSY.replace("DATADIR", str(stack.data)).replace("SOCKETS", str(socket_dir(stack.data))).replace("PORT", str(stack.port))
        run = person.submit("/verify/", title="nosy", task=task, program=RIGHT, device="cpu", precision="fp32-strict", mode="train")
        events = finished(stack, person, run, [])
        said = [e["payload"]["message"] for e in events if e["kind"] == "verification.finished" and e["payload"]["job"] == "admit"]
        assert said and "looked everywhere and found []" in said[0], said
        assert not stack.query("SELECT 1 FROM runs_event WHERE payload::text LIKE %s", f"%{SECRET}%")
        assert not stack.query("SELECT 1 FROM runs_artefactchunk WHERE position(%s::bytea IN data) > 0", SECRET.encode())
        assert not stack.query("SELECT 1 FROM fleet_device WHERE doctor::text LIKE %s", f"%{SECRET}%")
        assert SECRET not in stack.logs()
    finally:
        stack.stop()

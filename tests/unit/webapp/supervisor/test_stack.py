from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from webapp.supervisor import stack as stack_module
from webapp.supervisor.children import spawn, stop
from webapp.supervisor.stack import devices


def test_devices_can_be_named(monkeypatch):
    monkeypatch.setenv("STITCHWORK_DEVICES", "cpu, cuda:1")
    assert devices() == ["cpu", "cuda:1"]


@pytest.mark.parametrize(("visible", "expected"), [("", ["cpu"]), ("-1", ["cpu"]), ("3,5", ["cpu", "cuda:0", "cuda:1"])])
def test_visible_gpus_are_counted(monkeypatch, visible, expected):
    monkeypatch.delenv("STITCHWORK_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices() == expected


def test_without_a_driver_there_is_the_cpu(monkeypatch):
    monkeypatch.delenv("STITCHWORK_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(stack_module.shutil, "which", lambda name: None)
    monkeypatch.setattr(stack_module.Path, "glob", lambda self, pattern: iter([]))
    assert devices() == ["cpu"]


def test_a_child_that_does_not_listen_is_ended():
    deaf = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"]
    child = spawn(deaf, environment=os.environ, when_parent_dies=signal.SIGKILL, output=subprocess.PIPE)
    child.stdout.readline()
    stop(child, signal.SIGTERM, 0.2)
    assert child.returncode == -signal.SIGKILL
    child.stdout.close()


def test_a_child_does_not_outlive_its_parent():
    code = (
        "import os, signal, sys, time\n"
        "from webapp.supervisor.children import spawn\n"
        "child = spawn([sys.executable, '-c', 'import time; time.sleep(60)'], environment=os.environ, when_parent_dies=signal.SIGKILL)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

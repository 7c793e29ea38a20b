"""If a host cannot confine a stranger's source, or does not answer in time, none of the source is run; the next probe may give a different result."""

import subprocess
import sys

import pytest

from verifier.confinement import layers, probe, sandbox
from verifier.limits import Limits


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(probe, "_last", None)
    monkeypatch.delenv("SANDBOX", raising=False)


def bwrap(folder, monkeypatch, script: str):
    """Fakes a host whose bubblewrap is `script`."""
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def spawn():
    return sandbox.spawn(sandbox.PartySpec(Limits()))


def test_a_host_without_bubblewrap_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        probe.NoSandbox, match="no stranger's source runs here: bubblewrap is not installed: apt-get install bubblewrap; .* SANDBOX=none"
    ):
        spawn()


def test_a_host_that_refuses_user_namespaces_runs_nothing(tmp_path, monkeypatch):
    bwrap(tmp_path, monkeypatch, "echo 'setting up uid map: Permission denied' >&2; exit 1")
    monkeypatch.setattr(probe, "_APPARMOR", tmp_path / "apparmor")
    (tmp_path / "apparmor").write_text("1\n")
    monkeypatch.setattr(probe, "contained", lambda: False)
    said = r"does not work \(setting up uid map: Permission denied\): sysctl kernel.apparmor_restrict.* ln -s .*/bwrap-userns-restrict"
    with pytest.raises(probe.NoSandbox, match=said):
        spawn()


@pytest.mark.parametrize(
    ("file", "value", "fix"),
    [("_CLONE", "0", "unprivileged_userns_clone=1"), ("_MOST", "0", "max_user_namespaces=10000"), ("_MOST", "9", "allow user namespaces")],
)
def test_the_fix_is_this_hosts(tmp_path, monkeypatch, file, value, fix):
    for name in ("_APPARMOR", "_CLONE", "_MOST"):
        monkeypatch.setattr(probe, name, tmp_path / name)
    (tmp_path / file).write_text(value)
    monkeypatch.setattr(probe, "contained", lambda: False)
    assert fix in probe.refusal("")
    monkeypatch.setattr(probe, "contained", lambda: True)
    assert "--security-opt seccomp=unconfined" in probe.refusal("")


def test_a_probe_that_takes_too_long_is_no_answer_and_is_not_kept(tmp_path, monkeypatch):
    bwrap(tmp_path, monkeypatch, "sleep 5")
    monkeypatch.setattr(probe, "SECONDS", 0.2)
    with pytest.raises(probe.NoSandbox, match="too busy to say whether it works"):
        spawn()
    bwrap(tmp_path, monkeypatch, "exit 0")
    assert not probe.probe().path  # until the next probe
    monkeypatch.setattr(probe, "AGAIN", -1.0)
    assert probe.required() == str(tmp_path / "bwrap")
    bwrap(tmp_path, monkeypatch, "exit 1")
    assert probe.required() == str(tmp_path / "bwrap")  # what worked is not probed again


def test_going_without_is_a_choice_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "look", lambda: pytest.fail("nobody wants to know"))
    monkeypatch.setenv("SANDBOX", "none")
    assert probe.required() == "" and probe.probe().why == "SANDBOX=none: switched off by whoever started this"
    found = layers.protection()
    assert found.sandbox == "process" and "SANDBOX=none" in found.missing[0]
    monkeypatch.setenv("SANDBOX", "whatever")
    monkeypatch.setattr(probe, "look", lambda: probe.Probe(why="none here"))
    with pytest.raises(probe.NoSandbox):
        probe.required()


def test_the_command_line_says_it(tmp_path):
    """A judge that cannot confine sources is of no use, and reports what to do."""
    task = tmp_path / "task.py"
    task.write_text("x = 1\n")
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "verifier", "admit", str(task), "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 2 and "there is no sandbox on this host" in done.stderr + done.stdout

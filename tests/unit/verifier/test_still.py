"""What stands still while another judge measures: everything, or with STITCH_STILL=device only what holds the device."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from verifier.limits import Limits
from verifier.pool import Pool
from verifier.spawned import MainProcess, Spawned
from verifier.starting import judge_environment

SLEEP = "import time; time.sleep(60)"
TALKATIVE = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print('on', flush=True); time.sleep(60)"


def pool_of(timed_processors, monkeypatch, still):
    monkeypatch.setenv("STITCH_STILL", still)
    pool = Pool(SimpleNamespace(place="cuda-none", timed_on=list(range(timed_processors))), Limits(), spares=0)
    party = {
        role: SimpleNamespace(
            role=role, on_device="builder" not in role, spawned=SimpleNamespace(ended=False, name=role), main_process=f"main of {role}"
        )
        for role in ROLES
    }
    pool.waiting, pool.builders = [party["spare"]], [party["waiting builder"]]
    pool.busy = [party[role] for role in ROLES[2:]]
    return pool, party


ROLES = ["spare", "waiting builder", "", "reference", "baseline", "runner", "observer", "builder"]


def test_everything_stands_still(monkeypatch):
    pool, party = pool_of(4, monkeypatch, "all")
    assert [spawned.name for spawned in pool.freezable()] == ROLES


def test_only_what_holds_the_device_and_of_a_baseline_the_interpreter(monkeypatch):
    pool, party = pool_of(4, monkeypatch, "device")
    held = [party[role].spawned for role in ("", "reference")] + ["main of baseline"] + [party[role].spawned for role in ("runner", "observer")]
    assert pool.freezable() == held
    party["runner"].spawned.ended = True
    assert party["runner"].spawned not in pool.freezable()


def test_where_parties_have_no_processors_of_their_own_everything_does(monkeypatch):
    pool, _ = pool_of(0, monkeypatch, "device")
    assert len(pool.freezable()) == len(ROLES)


def test_the_judge_hears_of_it(monkeypatch):
    monkeypatch.setenv("STITCH_STILL", "device")
    assert judge_environment()["STITCH_STILL"] == "device"


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_interpreter_stops_and_what_it_started_goes_on(wrapped):
    """`wrapped`: behind two processes, as bubblewrap puts them."""
    outer = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], *sys.argv[2:]])"
    command = [sys.executable, "-c", outer, outer, TALKATIVE] if wrapped else [sys.executable, "-c", TALKATIVE]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    spawned = Spawned(process, SimpleNamespace(close=lambda: None), Limits(), None, "", wrapped)
    try:
        process.stdout.readline()
        interpreter = spawned.main_pid()
        (helper,) = (int(pid) for pid in Path(f"/proc/{interpreter}/task/{interpreter}/children").read_text().split())
        main = MainProcess(spawned)
        main.freeze()
        deadline = time.monotonic() + 5
        while state(interpreter) != "T":
            assert time.monotonic() < deadline
        time.sleep(0.05)
        assert state(helper) != "T"
        main.thaw()
        while state(interpreter) == "T":
            assert time.monotonic() < deadline
    finally:
        os.killpg(process.pid, 9)
        spawned.end()
    main.freeze()  # it has ended: nothing happens
    main.thaw()

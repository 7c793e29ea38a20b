"""Processes that are frozen while another judge measures: all of them or, with STITCH_STILL=device, only those that use the device."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.callback import callback_handler

from verifier.channel import ChannelTimeout
from verifier.confinement.spawned import MainProcess, Spawned
from verifier.devices.opening import open_device
from verifier.judge.pool import Pool
from verifier.judge.still import Still
from verifier.limits import Limits
from verifier.parties.compiling import ON_DEVICE, Compiling
from verifier.parties.permit import Permit
from verifier.startup.starting import judge_environment

SLEEP = "import time; time.sleep(60)"
TALKATIVE = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print('on', flush=True); time.sleep(60)"


def pool_of(timed_processors, monkeypatch, still):
    monkeypatch.setenv("STITCH_STILL", still)
    processors = list(range(timed_processors))
    pool = Pool(SimpleNamespace(place="cuda-none", timed_on=processors, stands_on=processors), Limits(), spares=0)
    party = {
        role: SimpleNamespace(
            role=role, on_device="builder" not in role, spawned=SimpleNamespace(ended=False, name=role), still=f"stillness of {role}"
        )
        for role in ROLES
    }
    pool.waiting, pool.builders = [party["spare"]], [party["waiting builder"]]
    pool.busy = [party[role] for role in ROLES[2:]]
    return pool, party


ROLES = ["spare", "waiting builder", "", "reference", "baseline", "runner", "builder"]


def test_everything_stands_still(monkeypatch):
    pool, party = pool_of(4, monkeypatch, "all")
    assert [spawned.name for spawned in pool.freezable()] == ROLES


def test_only_what_may_use_the_device(monkeypatch):
    pool, party = pool_of(4, monkeypatch, "device")
    held = [f"stillness of {role}" for role in ("", "reference", "baseline", "runner")]
    assert pool.freezable() == held
    party["runner"].spawned.ended = True
    assert "stillness of runner" not in pool.freezable()


class Stopped:
    """A party that records the commands sent to its processes. `permit`: where the judge finds the permit."""

    def __init__(self, monkeypatch, role, permit):
        self.role, self.told = role, []
        self.permit = Permit.made()
        if permit != "there":
            self.permit.take_now()
        self.spawned = SimpleNamespace(freeze=lambda: self.told.append("all stop"), thaw=lambda: self.told.append("all go"))
        main = SimpleNamespace(freeze=lambda: self.told.append("main stops"), thaw=lambda: self.told.append("main goes"))
        monkeypatch.setattr("verifier.judge.still.MainProcess", lambda spawned: main)
        self.still = Still(self)


@pytest.mark.parametrize("role", ["", "baseline"])
def test_what_has_put_its_permit_back_goes_on_without_it(monkeypatch, role):
    party = Stopped(monkeypatch, role, "there")
    party.still.freeze()
    assert party.told == [] and not party.permit.take_now()
    party.role = "runner"  # its judge has assigned its role in the meantime, and waits before it sends it
    party.still.thaw()
    assert party.told == [] and party.permit.take_now()


@pytest.mark.parametrize(
    ("role", "permit", "told"),
    [
        ("baseline", "taken", ["main stops", "main goes"]),
        ("", "taken", ["all stop", "all go"]),
        ("reference", "there", ["all stop", "all go"]),
        ("runner", "there", ["all stop", "all go"]),  # a program could have put it there
    ],
)
def test_what_is_at_work_on_the_device_stops(monkeypatch, role, permit, told):
    party = Stopped(monkeypatch, role, permit)
    party.still.freeze()
    party.role = "another"
    party.still.thaw()
    party.still.thaw()
    assert party.told == told and party.permit.take_now() == (permit == "there")


def test_a_closed_permit_is_nobodys():
    permit = Permit.made()
    permit.close()
    permit.put()
    assert not permit.take_now()


@pytest.mark.slow
def test_a_party_imports_without_its_permit_and_takes_no_role(monkeypatch):
    """The process is started as the judge starts it; it is not frozen, but does the waiting itself."""
    monkeypatch.setenv("STITCH_STILL", "device")
    device = open_device("cpu", Path("/nowhere"))
    monkeypatch.setattr(type(device), "stands_on", [0], raising=False)
    pool = Pool(device, Limits(), spares=0)
    party = pool.spawn()
    try:
        party.still.freeze()
        assert party.receive(60, 0, "start").text("type") == "ready"  # it has imported torch
        party.send("role", {"role": "baseline", "device": device.config(), "precision": "fp32-strict", "mode": "train"}, 60)
        with pytest.raises(ChannelTimeout):
            party.channel.receive(0.5, 0)
        party.still.thaw()
        assert party.receive(60, 0, "role").text("type") == "ok"
        assert not party.permit.take_now()
    finally:
        party.end()


def test_compilations_do_without_the_permit_and_what_they_do_on_the_device_takes_it(monkeypatch):
    permit, seen, synced = Permit.made(), [], []
    permit.take()

    def there():
        found = permit.take_now()
        if found:
            permit.put()
        return found

    loading = SimpleNamespace(load=lambda: seen.append(("loads", there())))
    monkeypatch.setitem(sys.modules, "a_module_of_inductors", loading)
    monkeypatch.setattr("verifier.parties.compiling.ON_DEVICE", [("a_module_of_inductors", "", "load")])

    def backend(graph, inputs):
        seen.append(("compiles", there()))
        loading.load()

        def call(*arguments):
            seen.append(("runs", there()))
            return graph(*arguments)

        return call

    try:
        Compiling(permit, lambda: synced.append(there()))
        loading.load()
        compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
        value = torch.ones(3)
        assert torch.equal(compiled(value), value.sin() + 1)
        assert torch.equal(compiled(value), value.sin() + 1)
    finally:
        callback_handler.clear()
        torch._dynamo.reset()
    assert seen == [("loads", False), ("compiles", True), ("loads", False), ("runs", False), ("runs", False)]
    assert synced == [False] * 3, "before the compiler is imported, before a compilation, and after a kernel is loaded in one"
    assert not there()


def test_where_pytorch_has_not_what_it_rests_on_nothing_changes(monkeypatch):
    monkeypatch.setattr("verifier.parties.compiling.ON_DEVICE", [("torch", "", "no_such_function")])
    permit = Permit.made()
    permit.take()
    with pytest.raises(AttributeError):
        Compiling(permit, lambda: None)
    assert callback_handler.start_callbacks == [] and not permit.take_now()


def test_this_pytorch_has_it(monkeypatch):
    for module, owner, name in ON_DEVICE:
        found = importlib.import_module(module)
        assert callable(getattr(getattr(found, owner) if owner else found, name))


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
    """`wrapped`: whether the process is below two others, as in bubblewrap."""
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
    main.freeze()  # it has ended, so nothing happens
    main.thaw()

"""The judge binds a party's threads to processors from outside."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from verifier.confinement.binding import Binding, autograd_threads, threads_of

# A main thread, a thread with autograd's name, another thread, and a child process; it reports once all of them are running.
PARTY = """
import subprocess, sys, threading
from pathlib import Path
there = threading.Barrier(3)
def wait(name):
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
    there.wait()
    threading.Event().wait()
for name in ("pt_autograd_0", "helper"):
    threading.Thread(target=wait, args=(name,), daemon=True).start()
child = subprocess.Popen([sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
there.wait()
print(child.pid, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing to choose from")


@pytest.fixture
def party():
    process = subprocess.Popen([sys.executable, "-c", PARTY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        child = int(process.stdout.readline())
        yield SimpleNamespace(pid=process.pid, child=child, members=lambda: [process.pid, child], main_pid=lambda: process.pid)
    finally:
        process.communicate()


def on(timed, wide):
    return SimpleNamespace(timed_on=timed, wide_on=wide, stands_on=timed)


def where(party):
    """Returns the processors of each thread: main, autograd's, the helper, and those of the process that it started."""
    (autograd,) = autograd_threads(party.pid)
    (helper,) = set(threads_of(party.pid)) - {party.pid, autograd}
    return [os.sched_getaffinity(thread) for thread in (party.pid, autograd, helper, party.child)]


def test_everything_of_a_party_goes_where_it_is_timed_and_back(party):
    every = sorted(os.sched_getaffinity(0))
    timed, wide = every[:1], every[1:]
    binding = Binding(party, on(timed, wide))
    binding.spread(False)
    assert where(party) == [set(timed)] * 4
    binding.spread(True)
    assert where(party) == [set(wide)] * 4


def test_what_launches_stands_on_one_processor_and_helpers_stay(party):
    timed = sorted(os.sched_getaffinity(0))[:2]
    binding = Binding(party, on(timed, []))
    binding.spread(False)
    binding.stand_on(3)
    assert where(party) == [{timed[1]}, {timed[1]}, set(timed), set(timed)]
    binding.stand_on(2)
    assert where(party)[:2] == [{timed[0]}] * 2
    binding.spread(False)
    binding.stand_on(2)  # the binding was released in between
    assert where(party)[:2] == [{timed[0]}] * 2


def test_where_parties_are_bound_to_none_nobody_is_moved(party):
    before = where(party)
    binding = Binding(party, on([], []))
    binding.spread(False)
    binding.stand_on(1)
    assert where(party) == before


def test_who_has_ended_or_may_not_be_moved_is_no_error(party, monkeypatch):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: (_ for _ in ()).throw(PermissionError()))
    Binding(party, on([0], [1])).spread(False)
    gone = SimpleNamespace(members=lambda: [2**22 + 1], main_pid=lambda: None)
    binding = Binding(gone, on([0], [1]))
    binding.spread(True)
    binding.stand_on(1)

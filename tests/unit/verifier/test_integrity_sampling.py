"""Sampling a process from outside: running code is attributed by its address."""

from __future__ import annotations

import platform
import subprocess
import sys
import time

import pytest

from verifier.build.artefacts import Artefacts
from verifier.integrity.sampling.mapped import Kind, Mapped, Mapping
from verifier.integrity.sampling.native import RETURN, Sample, Sampler, SamplerError, build_sampler
from verifier.integrity.sampling.observing import Tally

SOURCE = r"""
#include <math.h>
static float __attribute__((noinline)) inner(float x) { for (int i = 0; i < 1000; ++i) x = x * 0.5f + 1.f; return x; }
extern "C" void spin(volatile float* p) { for (;;) *p = inner(*p); }
extern "C" int seven() { return 7; }
extern "C" void copies(char* a, char* b) { for (;;) __builtin_memcpy(a, b, 1 << 20); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "own.so"
    command = ["g++", "-O1", "-fno-builtin", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=SOURCE.encode(), check=True)
    return path


@pytest.fixture
def running(library):
    begun = []

    def run(call: str) -> subprocess.Popen:
        buffers = "a, b = (ctypes.create_string_buffer(1 << 20) for _ in 'ab')"
        code = f"import ctypes; L = ctypes.CDLL({str(library)!r}); {buffers}; print(1, flush=True)\n{call}"
        process = subprocess.Popen([sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        begun.append(process)
        assert process.stdout.readline()
        return process

    yield run
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def looked_at(process: subprocess.Popen, artefacts: Artefacts, folder, enough: int = 20) -> tuple[Sampler, Mapped, list[Sample]]:
    mapped, seen = Mapped(process.pid, "/nowhere", False, artefacts), []
    try:
        sampler = Sampler(build_sampler(folder), process.pid, 5)
    except SamplerError as error:
        pytest.skip(str(error))
    sampler.know(mapped.read())
    until = time.monotonic() + 10
    while len(seen) < enough and time.monotonic() < until and not sampler.error:
        with sampler:
            time.sleep(0.02)
        seen += sampler.seen
    assert not sampler.error
    return sampler, mapped, seen


def made(library, name: str = "own.so") -> Artefacts:
    data = library.read_bytes()
    return Artefacts([(name, len(data))], data, 0.0)


def test_the_programs_code_is_told_by_its_bytes(running, library, tmp_path):
    process = running("L.spin(ctypes.byref(a))")
    _, mapped, seen = looked_at(process, made(library), tmp_path)
    assert {mapped.function(sample.address) for sample in seen if sample.kind is Kind.OWN} >= {(0, "_ZL5innerf")}
    assert sum(sample.kind is Kind.OWN for sample in seen) > 0.8 * len(seen)
    _, _, seen = looked_at(process, Artefacts([], b"", 0.0), tmp_path)
    assert {sample.kind for sample in seen} <= {Kind.LIBRARY, Kind.HOST}


def test_what_libc_does_for_own_code_is_its_callers(running, library, tmp_path):
    _, mapped, seen = looked_at(running("L.copies(a, b)"), made(library), tmp_path)
    own = [mapped.function(sample.address) for sample in seen if sample.kind is Kind.OWN]
    assert own.count((0, "copies")) > 0.8 * len(seen)


def test_what_libc_does_for_python_through_an_address_is_a_librarys(running, library, tmp_path):
    _, mapped, seen = looked_at(running("while True: ctypes.memmove(a, b, 1 << 20)"), made(library), tmp_path)
    assert sum(sample.kind is Kind.LIBRARY for sample in seen) > 0.8 * len(seen)


def test_a_process_that_waits_is_not_looked_at(running, library, tmp_path):
    process = running("import time; time.sleep(60)")
    mapped = Mapped(process.pid, "/nowhere", False, made(library))
    try:
        sampler = Sampler(build_sampler(tmp_path), process.pid, 5)
    except SamplerError as error:
        pytest.skip(str(error))
    sampler.know(mapped.read())
    time.sleep(0.2)
    with sampler:
        time.sleep(0.1)
    assert sampler.seen == []


def test_a_function_of_a_running_process_returns_at_once_and_is_put_back(running, library, tmp_path):
    process = running("import sys\nfor line in sys.stdin: print(L.seven(), flush=True)")
    mapped = Mapped(process.pid, "/nowhere", False, made(library))
    sampler = Sampler(build_sampler(tmp_path), process.pid, 5)
    mapped.read()
    (entry,) = mapped.entries(0, lambda name: name == "seven")

    def answer() -> int:
        process.stdin.write(b"\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    assert answer() == 7
    time.sleep(0.1)
    try:
        before = sampler.write(entry, RETURN[platform.machine()])
    except SamplerError as error:
        pytest.skip(str(error))
    assert answer() != 7
    sampler.write(entry, before)
    assert answer() == 7


def test_each_moment_counts_alike_and_waiting_not_at_all():
    class Flat:
        def at(self, address):
            return Mapping(0, 10, 0, "/lib/libblas.so", Kind.LIBRARY)

        def function(self, address):
            return 0, "mine" if address == 1 else "cblas_sgemm"

    tally = Tally(Flat())
    one = [Sample(0, 1, Kind.OWN), Sample(0, 1, Kind.OWN), Sample(0, 5, Kind.LIBRARY), Sample(0, 6, Kind.IDLE)]
    tally.add([*one, Sample(1, 1, Kind.OWN), Sample(2, 6, Kind.IDLE), Sample(3, 6, Kind.HOST)])
    tally.add([Sample(0, 5, Kind.LIBRARY), Sample(1, 2, Kind.OWN)])
    found = tally.result()
    assert found.moments == 4 and found.own == {(0, "mine"): pytest.approx(1 / 4)}, "beside a library's code, own code may only be waiting"
    assert found.library["cblas_sgemm (linked into the program's library)"] == pytest.approx(1 / 4)
    assert found.library["libblas.so"] == pytest.approx(2 / 4)


@pytest.mark.slow
def test_threads_that_end_meanwhile_are_no_refusal(running, library, tmp_path):
    """A thread that ends while it is being stopped gives the same errors as one that may not be inspected."""
    process = running("import threading\nwhile True:\n    thread = threading.Thread(target=L.seven)\n    thread.start()\n    thread.join()")
    sampler, _, seen = looked_at(process, made(library), tmp_path, enough=1500)
    assert sampler.error == 0 and seen

import shutil
import socket
import struct
import time

import pytest

from verifier.shim.clock import Clock, ClockError, Native, build_clock

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("g++") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_clock(tmp_path_factory.mktemp("clock"))


def test_the_clock_runs_from_the_judges_byte_to_done(library):
    judge, party = socket.socketpair()
    clock = Clock(Native(library))
    judge.sendall(b"FGS")  # created in advance, because `go` and `done` hold the interpreter's lock while they wait
    clock.go(party.fileno())
    time.sleep(0.01)
    said = clock.done(party.fileno())
    assert judge.recv(1) == b"f"
    (nanoseconds,) = struct.unpack("<q", judge.recv(8))
    assert nanoseconds == said and 10e6 <= nanoseconds < 5e9


def test_a_judge_that_is_gone_is_an_error(library):
    judge, party = socket.socketpair()
    judge.close()
    with pytest.raises(ClockError, match="judge is gone"):
        Clock(Native(library)).go(party.fileno())


def test_it_is_built_once(library):
    before = library.stat().st_mtime_ns
    assert build_clock(library.parent) == library and library.stat().st_mtime_ns == before


def test_without_a_driver_cuda_is_refused(library):
    try:
        import ctypes

        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(ClockError, match="libcuda"):
            Native(library).on_cuda(1)
    else:
        pytest.skip("this host has a CUDA driver")

"""Reading sanitizer output; the texts come from the tools' documentation and from real runs, and are shortened."""

from verifier.profiling.redact import redacted
from verifier.profiling.sanitizing.sanitizer_report import cpu_faults, gpu_faults

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, const float *, int)+0x90 in /tmp/build/kernels.cu:6
=========     by thread (31,0,0) in block (4,0,0)
=========     Address 0x7f34de000200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f34de000000 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8b12] in secret-host-program
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, const float *, int)+0x90 in /tmp/build/kernels.cu:6
=========     by thread (30,0,0) in block (4,0,0)
=========     Address 0x7f34de000204 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f34de000000 of size 512 bytes
=========
========= Invalid __shared__ read of size 8 bytes
=========     at void ns::tile<(int)4>(float *)+0x1a0
=========     by thread (1,2,3) in block (0,0,0)
=========     Address 0x41 is misaligned
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at reduce(int *, int *)+0xf0 in racecheck.cu:12
=========     and Read access at reduce(int *, int *)+0xd0 in racecheck.cu:14 [32 hazards]
=========     and Write access at reduce(int *, int *)+0xf0 in racecheck.cu:12 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at divergent(int *)+0xa0 in x.cu:61
=========     by thread (19,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at add(int *)+0x70 in /home/someone/memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""


def test_wrong_accesses_are_counted_by_place():
    first, second = gpu_faults(MEMCHECK, "memcheck")
    assert (first.kind, first.kernel, first.line, first.count) == ("out of bounds", "scale", 6, 2)
    assert (first.thread, first.block) == ((31, 0, 0), (4, 0, 0))
    assert first.access == "write of 4 bytes, global memory" and "1 bytes after an allocation of 512 bytes" in first.message
    assert (second.kind, second.kernel, second.line, second.thread) == ("misaligned", "ns::tile", None, (1, 2, 3))
    assert "0x7f34de" not in "".join(fault.model_dump_json() for fault in (first, second))


def test_races_barriers_and_uninitialised_reads():
    (race,) = gpu_faults(RACECHECK, "racecheck")
    assert (race.kind, race.kernel, race.line) == ("race", "reduce", 12) and "read in line 14" in race.message
    (barrier,) = gpu_faults(SYNCCHECK, "synccheck")
    assert (barrier.kind, barrier.kernel, barrier.line, barrier.thread) == ("barrier", "divergent", 61, (19, 0, 0))
    (read,) = gpu_faults(INITCHECK, "initcheck")
    assert (read.kind, read.kernel, read.line) == ("uninitialized read", "add", 41)


def test_a_clean_log_has_none():
    assert gpu_faults("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "memcheck") == []
    assert gpu_faults("", "memcheck") == [] == cpu_faults("")


ADDRESS = """\
=================================================================
==3==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x7f64d092d800 at pc 0x7f64d14c1437 bp 0x7fff sp 0x7fff
READ of size 4 at 0x7f64d092d800 thread T0
    #0 0x7f64d14c1436 in scaled_tanh(float const*, float*, long) /tmp/build/tmpojbg8ryu/kernels.cpp:4
    #1 0x7f64f71c9f79  (/lib/x86_64-linux-gnu/libffi.so.8+0x6f79)

0x7f64d092d800 is located 0 bytes to the right of 1048576-byte region [0x7f64d082d800,0x7f64d092d800)
SUMMARY: AddressSanitizer: heap-buffer-overflow /tmp/build/tmpojbg8ryu/kernels.cpp:4 in scaled_tanh
kernels.cpp:9:56: runtime error: signed integer overflow: 1 + 2147483647 cannot be represented in type 'int'
"""


def test_address_and_undefined():
    address, undefined = cpu_faults(ADDRESS)
    assert (address.tool, address.kind, address.kernel, address.line) == ("address", "out of bounds", "scaled_tanh", 4)
    assert address.message == "read of 4 bytes, 0 bytes after an allocation of 1048576 bytes"
    assert (undefined.tool, undefined.line) == ("undefined", 9) and "signed integer overflow" in undefined.message


def test_redaction_keeps_what_was_said():
    assert redacted("==ERROR== cannot open /home/someone/secret/x.so: 3/4 of it") == "==ERROR== cannot open x.so: 3/4 of it"
    assert redacted("TOKEN=abc at 10.1.2.3:80 in process 123") == "TOKEN=... at (address) in process"
    assert redacted("1.5 GB/s, aten::add, k<a/b>") == "1.5 GB/s, aten::add, k<a/b>"

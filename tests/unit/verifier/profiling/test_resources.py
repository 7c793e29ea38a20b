"""Kernel resources read from compiled code; the expected figures are those that `ptxas -v` printed for tests/data/kernels.cu."""

import struct
from pathlib import Path

import pytest

from verifier.profiling.binaries.cubin import CubinError, _lz4, cubins, plain_name
from verifier.profiling.binaries.occupancy import occupancy
from verifier.profiling.binaries.resources import kernel_resources

FATBIN = Path(__file__).parents[3] / "data" / "kernels.fatbin"


@pytest.fixture(scope="module")
def found():
    return {(kernel.name, kernel.arch): kernel for kernel in kernel_resources(FATBIN)}


@pytest.mark.parametrize(
    ("kernel", "arch", "registers", "stack", "loaded", "stored", "shared"),
    [
        ("ns::wide", "sm_80", 12, 0, 0, 0, 1024),
        ("ns::wide", "sm_90", 14, 0, 0, 0, 1024),
        ("ns::wide", "sm_120", 14, 0, 0, 0, 1024),
        ("spilled", "sm_80", 32, 104, 120, 112, 0),
        ("spilled", "sm_90", 32, 96, 112, 104, 0),
        ("spilled", "sm_120", 32, 96, 112, 104, 0),
        ("scalar", "sm_90", 12, 0, 0, 0, 0),
    ],
)
def test_figures_are_those_of_ptxas(found, kernel, arch, registers, stack, loaded, stored, shared):
    resources = found[kernel, arch]
    assert (resources.registers, resources.stack, resources.shared) == (registers, stack, shared)
    assert (resources.local_load_bytes, resources.local_store_bytes) == (loaded, stored)
    assert resources.spills == (stored > 0)


def test_widths_and_instructions(found):
    wide, scalar, spilled = (found[name, "sm_90"] for name in ("ns::wide", "scalar", "spilled"))
    assert (wide.widest_global_load, wide.widest_global_store) == (16, 16)
    assert (scalar.widest_global_load, scalar.widest_global_store) == (4, 4)
    assert wide.mix["barrier"] == wide.mix["shared_load"] == wide.mix["shared_store"] == 1
    assert spilled.mix["ffma"] == spilled.mix["global_load"] == spilled.mix["global_store"] == 40
    assert not any("other" in kernel.mix for kernel in found.values())
    assert sum(spilled.mix.values()) == spilled.instructions


def test_a_row_is_flat_and_the_architecture_can_be_chosen():
    rows = [kernel.row() for kernel in kernel_resources(FATBIN.read_bytes(), arch="sm_90")]
    assert [row["kernel"] for row in rows] == ["ns::wide", "spilled", "scalar"] and {row["arch"] for row in rows} == {"sm_90"}
    assert rows[0]["max_threads"] == 256 and rows[0]["occupancy"] == 1.0 and "max_threads" not in rows[2]
    assert all(isinstance(value, int | float | str) for row in rows for value in row.values())


def test_a_cubin_alone_is_read_too():
    cubin = list(cubins(FATBIN.read_bytes()))[1]
    assert {kernel.arch for kernel in kernel_resources(cubin)} == {"sm_90"}


def test_a_file_without_gpu_code_has_no_kernels():
    assert kernel_resources(b"") == [] == kernel_resources(b"not a binary")
    assert kernel_resources(Path("/bin/sh").read_bytes()) == []


def test_damage_is_an_error_and_nothing_else():
    data = FATBIN.read_bytes()
    cubin = list(cubins(data))[1]
    for cut in (*range(60, len(cubin), 997), len(cubin) - 1):
        try:
            kernel_resources(cubin[:cut])
        except CubinError:
            pass
    for at in range(0, 400):
        try:
            kernel_resources(data[:at] + b"\xff" * 8 + data[at + 8 :])
        except CubinError:
            pass
    with pytest.raises(CubinError):
        kernel_resources(data[:100])


def test_lz4_copies_that_overlap_themselves():
    # Two literals, a copy of nine bytes from two bytes back, one literal; the last sequence has no copy.
    block = bytes([0x25]) + b"ab" + struct.pack("<H", 2) + bytes([0x10]) + b"c"
    assert _lz4(block, 12) == b"ab" + b"ababababa" + b"c"
    with pytest.raises(CubinError):
        _lz4(bytes([0x0F, 1, 0, 255, 255, 0]), 100)  # refers to data before the beginning


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z7spilledPKfPf", "spilled"),
        ("_ZN2ns4wideILi8EEEvPK6float4PS1_", "ns::wide"),
        ("_Z3runILi4EEvPf", "run"),
        ("_ZN12_GLOBAL__N_16kernelEPf", "kernel"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi", "at::native::vectorized_elementwise_kernel"),
        ("triton_kernel", "triton_kernel"),
        ("_Z99x", "_Z99x"),
    ],
)
def test_names(symbol, name):
    assert plain_name(symbol) == name


def test_occupancy_by_each_resource():
    assert occupancy(90, 256, 32, 0).share == 1.0
    # Nsight Compute reports 12.5 % and one block for this kernel (cutlass_80_simt_sgemm_256x128 on an H200: 202 registers, 256 threads).
    by_registers = occupancy(90, 256, 202, 0)
    assert (by_registers.by, by_registers.limits["registers"], by_registers.share) == ("registers", 1, 0.125)
    by_shared = occupancy(90, 128, 32, 100 << 10)
    assert (by_shared.by, by_shared.blocks) == ("shared memory", 2)
    assert occupancy(86, 1024, 32, 0).share == pytest.approx(2 / 3)
    assert occupancy(90, 32, 16, 0).by == "blocks"
    assert occupancy(90, 256, 32, 300 << 10).blocks == 0
    assert occupancy(61, 256, 32, 0) is None and occupancy(90, 2048, 32, 0) is None

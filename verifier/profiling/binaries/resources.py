"""Determines the resources that each kernel of a program needs without running it: registers, local memory, shared memory, instructions, occupancy.

This is the part of a profile that needs no counters, no GPU and no CUDA tools: the figures are in the compiled code (`cubin.py`, `sass.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from verifier.profiling.binaries.cubin import CubinError, kernels, plain_name
from verifier.profiling.binaries.occupancy import Occupancy, occupancy
from verifier.profiling.binaries.sass import Mix, mix

__all__ = ["CubinError", "KernelResources", "kernel_resources"]


@dataclass(frozen=True)
class KernelResources:
    """One kernel for one architecture. Sizes are in bytes; counts refer to instructions in the code, executed or not.

    `local_load_bytes` and `local_store_bytes` are the bytes that a thread moves between registers and local memory in one pass over the code. They
    come from spills or from dynamically indexed arrays (which are then included in `stack`).
    """

    name: str  # qualified, without parameters
    symbol: str
    arch: str  # "sm_90"
    registers: int
    stack: int
    shared: int
    max_threads: int | None
    instructions: int
    local_load_bytes: int
    local_store_bytes: int
    widest_global_load: int | None  # widest access of one thread: 4, 8, 16; null if the kernel has none
    widest_global_store: int | None
    warpgroup: int = 0  # tensor-core instructions of a warpgroup (wgmma)
    mix: dict[str, int] = field(default_factory=dict)

    @property
    def spills(self) -> bool:
        return self.local_load_bytes + self.local_store_bytes > 0

    @property
    def tensor_cores(self) -> bool:
        return self.mix.get("tensor", 0) > 0

    def occupancy(self, threads: int | None = None, dynamic_shared: int = 0) -> Occupancy | None:
        """Computes the theoretical occupancy for blocks of `threads` threads (by default the launch bound); null if neither is known."""
        threads = threads or self.max_threads
        return occupancy(int(self.arch[3:]), threads, self.registers, self.shared + dynamic_shared) if threads else None

    def row(self) -> dict[str, int | float | str]:
        """Returns a flat row for `BuildInfo.resources`; unknown figures are omitted."""
        values: dict[str, int | float | str | None] = {
            "kernel": self.name[:200],
            "arch": self.arch,
            "registers": self.registers,
            "stack_bytes": self.stack,
            "spill_load_bytes": self.local_load_bytes,
            "spill_store_bytes": self.local_store_bytes,
            "shared_bytes": self.shared,
            "max_threads": self.max_threads,
            "instructions": self.instructions,
            "widest_load_bytes": self.widest_global_load,
            "widest_store_bytes": self.widest_global_store,
            "tensor_instructions": self.mix.get("tensor", 0),
            "wgmma_instructions": self.warpgroup,
        }
        bound = self.occupancy()
        if bound is not None:
            values |= {"occupancy": round(bound.share, 4), "occupancy_limit": bound.by}
        return {key: value for key, value in values.items() if value is not None}


def kernel_resources(binary: bytes | str | Path, arch: str = "") -> list[KernelResources]:
    """Reads the resources of every kernel in a shared library, object, fat binary or cubin, in file order.

    `arch` ("sm_90") selects the kernels compiled for it, if there are any. A file without GPU code yields an empty list; a file with unreadable code
    raises `CubinError`, and an unreadable path raises `OSError`. The function executes nothing and writes nothing.
    """
    data = binary if isinstance(binary, bytes) else Path(binary).read_bytes()
    found = []
    for kernel in kernels(data):
        counted: Mix = mix(kernel.code, kernel.arch)
        found.append(
            KernelResources(
                name=plain_name(kernel.symbol),
                symbol=kernel.symbol,
                arch=f"sm_{kernel.arch}",
                registers=kernel.registers,
                stack=kernel.stack,
                shared=kernel.shared,
                max_threads=kernel.max_threads,
                instructions=counted.instructions,
                local_load_bytes=counted.bytes.get("local_load", 0),
                local_store_bytes=counted.bytes.get("local_store", 0),
                widest_global_load=counted.widest.get("global_load"),
                widest_global_store=counted.widest.get("global_store"),
                warpgroup=counted.warpgroup,
                mix=counted.counts,
            )
        )
    fitting = [kernel for kernel in found if kernel.arch == arch]
    return fitting or found

"""Measures the cost of exchanging values between blocks of a GPU, within a thread block cluster (through distributed shared memory) and across the
grid (through L2), and the number of clusters of each size that can be resident at once. These figures determine how a recurrence or a reduction is
divided among blocks."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from verifier.devices.cuda_driver import GpuFacts
from verifier.devices.cuda_rates import best_seconds, keep, kept

SIZES = (2, 4, 8, 16)  # blocks of a cluster; more than 8 is not portable
THREADS = 256  # as in `exchanges.cu`
ROOM = 32768  # bytes that a block reads from another in a round, as in `exchanges.cu`
ROUNDS, READS = 2000, 400  # rounds of the shorter of two launches; the longer has twice as many, so the launch itself cancels out
CAPABILITY = (9, 0)  # the first with clusters
SECONDS = 60  # time limit of the process that measures
FAILED = "failed"  # kept in place of figures, so that a measurement that fails is not repeated by every judge


class Exchanges:
    """The kernels of `exchanges.cu`. Every method raises `RuntimeError` if the CUDA runtime reports an error."""

    def __init__(self, torch: Any, library: Path, device: str, blocks: int):
        self._torch, self._library, self._blocks = torch, ctypes.CDLL(str(library)), blocks
        properties = torch.cuda.get_device_properties(device)
        self.shared = int(properties.shared_memory_per_block_optin)
        self._given = torch.zeros(2 * blocks * THREADS, device=device)
        self._kept = torch.zeros(2 * blocks * THREADS, device=device)
        self._counter = torch.zeros(1, dtype=torch.int32, device=device)
        whole, pointer = ctypes.c_int, ctypes.c_void_p
        self._library.clusters.argtypes = [whole, whole, pointer]
        self._library.in_clusters.argtypes = [whole, whole, whole, whole, whole, pointer, pointer]
        self._library.across_grid.argtypes = [whole, whole, pointer, pointer, pointer, pointer]

    def _checked(self, code: int) -> None:
        if code:
            raise RuntimeError(f"the CUDA runtime reports error {code}")

    def _stream(self) -> int:
        return int(self._torch.cuda.current_stream().cuda_stream)

    def resident(self, size: int) -> int:
        """Returns how many clusters of `size` blocks are resident at once if each block takes all shared memory of a multiprocessor."""
        found = ctypes.c_int()
        self._checked(self._library.clusters(size, self.shared, ctypes.byref(found)))
        return found.value

    def in_clusters(self, reads: bool, size: int, count: int, rounds: int) -> None:
        pointer = self._kept.data_ptr()
        self._checked(self._library.in_clusters(int(reads), size, count, self.shared, rounds, pointer, self._stream()))

    def across_grid(self, rounds: int) -> None:
        pointers = (self._given.data_ptr(), self._counter.data_ptr(), self._kept.data_ptr())
        self._checked(self._library.across_grid(self._blocks, rounds, *pointers, self._stream()))

    def round_seconds(self, launch: Callable[[int], None], rounds: int) -> float:
        """Returns the duration of one round in seconds, derived from launches with `rounds` rounds and with twice as many."""
        short, long = (best_seconds(self._torch, partial(launch, many), calls=1) for many in (rounds, 2 * rounds))
        return (long - short) / rounds


def exchanges(torch: Any, library: Path, device: str, multiprocessors: int) -> dict[str, float]:
    """Returns, for each cluster size that can be resident, `clusters_<size>` (how many at once) and `cluster_us_<size>` (one exchange of one value
    per thread, with a barrier across the cluster); `cluster_read_gbs` (reads of another block's shared memory in clusters of 8, in all blocks
    together); and `grid_us` (an exchange through L2 with a barrier across one block per multiprocessor). Raises `RuntimeError` if a launch fails."""
    kernels = Exchanges(torch, library, device, multiprocessors)
    found: dict[str, float] = {}
    for size in SIZES:
        count = kernels.resident(size)
        if count:
            found[f"clusters_{size}"] = count
            seconds = kernels.round_seconds(partial(kernels.in_clusters, False, size, count), ROUNDS)
            found[f"cluster_us_{size}"] = round(seconds * 1e6, 3)
        if size == 8 and count:
            seconds = kernels.round_seconds(partial(kernels.in_clusters, True, size, count), READS)
            found["cluster_read_gbs"] = round(count * size * ROOM / seconds / 1e9, 1)
    found["grid_us"] = round(kernels.round_seconds(kernels.across_grid, ROUNDS) * 1e6, 3)
    return found if all(value > 0 for value in found.values()) else {}


def known(folder: Path, nvcc: str, facts: GpuFacts, device: str) -> dict[str, float]:
    """Returns the figures of a GPU. They are measured once, after an earlier judge has compiled the kernels, so the first judge does not wait for the
    compiler. The result is empty until then, and also if the kernels do not run, because programs can be judged without these figures."""
    from verifier.passes import native  # imports torch, which a device does without until it is opened

    path = folder / f"exchanges-{facts.model}-{facts.uuid[-12:]}.json"
    found = kept(path)
    library = native.library_path(folder, nvcc, facts.arch, native.EXCHANGES)
    if not found and library.exists():
        found = measured_apart(library, device, facts.multiprocessors) or {FAILED: 1.0}
        keep(path, found)
    return {} if FAILED in found else found


def measured_apart(library: Path, device: str, multiprocessors: int) -> dict[str, float]:
    """Returns the figures, measured in a separate process, because a failure of kernels that wait for each other must not stop a judge. The result is
    empty
    in that case."""
    command = [sys.executable, "-m", "verifier.devices.cuda_exchanges", str(library), device, str(multiprocessors)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True, cwd=Path(__file__).parents[2])
        return {str(name): float(value) for name, value in json.loads(done.stdout).items()}
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError):
        return {}


def main(arguments: list[str]) -> None:
    import torch

    library, device, multiprocessors = arguments
    print(json.dumps(exchanges(torch, Path(library), device, int(multiprocessors))))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Builds and drives the judge's kernels for multi-gigabyte tensors (`passes.cu`). They make a single pass over memory, whereas PyTorch operators need
five to twelve.

On an H200, those operators took two fifths of the measuring time of the full tier for a task with 6 GiB of inputs and 6 GiB of outputs. The functions
return null if no kernel can be used: there is no nvcc, the kernels are not built yet, or the tensor is small or has an unsupported type or layout. In
that case, `verifier/correctness/bounds.py` and `verifier/correctness/fingerprint.py` use operators, with the same result except for the rounding of
sums.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from verifier.hashes import sha256

SOURCE = Path(__file__).with_name("passes.cu")
EXCHANGES = Path(__file__).with_name("exchanges.cu")  # driven by `verifier/devices/cuda_exchanges.py`
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
LEAST = 1 << 22  # number of elements below which launches take longer than passes
BLOCKS = 4096  # maximum number of blocks; each writes a partial result
A_BLOCK = 2048  # elements that a block reads at a time
ALIGNED = 16  # bytes


def library_path(folder: Path, nvcc: str, architecture: str, source: Path = SOURCE) -> Path:
    """Returns where `build` keeps the shared library of a source."""
    return folder / f"{source.stem}-{sha256(f'{source.read_text()}{architecture}{nvcc}')[:16]}.so"


def build(folder: Path, nvcc: str, architecture: str, source: Path = SOURCE) -> Path | None:
    """Returns the shared library for GPUs of this architecture, such as "sm_90", and compiles it first if it is missing. Returns null if compilation
    fails."""
    library = library_path(folder, nvcc, architecture, source)
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "built.so"
        command = [nvcc, "-O3", "-std=c++17", f"-arch={architecture}", "-shared", "-Xcompiler=-fPIC", str(source), "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        os.replace(built, library)
    return library


class Passes:
    """The library's kernels; `kind` is the device whose memory they can read."""

    def __init__(self, library: Path, kind: str = "cuda", least: int = LEAST):
        self._library, self._kind, self._least = ctypes.CDLL(str(library)), kind, least
        pointer, count, whole = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int
        end: list[type[ctypes._SimpleCData[Any]]] = [whole, pointer]  # blocks, stream
        self._library.squares.argtypes = [whole, pointer, count, pointer, pointer, *end]
        self._library.farthest.argtypes = [whole, whole, pointer, pointer, count, ctypes.c_double, pointer, *end]
        self._library.differ.argtypes = [pointer, pointer, count, pointer, *end]
        self._library.fingerprint.argtypes = [pointer, count, ctypes.c_ulonglong, ctypes.c_ulonglong, pointer, pointer, *end]

    def takes(self, *tensors: torch.Tensor) -> bool:
        return all(
            tensor.device.type == self._kind
            and tensor.numel() == tensors[0].numel() >= self._least
            and tensor.is_contiguous()
            and tensor.data_ptr() % ALIGNED == 0
            for tensor in tensors
        )

    def squares(self, x: torch.Tensor) -> tuple[float, int] | None:
        """Returns the sum of squares over the finite elements, and the number of these elements."""
        if x.dtype not in TYPES or not self.takes(x):
            return None
        sums, finite = self._results(x, torch.float64), self._results(x, torch.int64)
        if self._library.squares(TYPES[x.dtype], x.data_ptr(), x.numel(), sums.data_ptr(), finite.data_ptr(), len(sums), self._stream(x)):
            return None
        return float(sums.sum()), int(finite.sum())

    def distance(self, value: torch.Tensor, expected: torch.Tensor, finite: bool = False) -> float | None:
        """Computes `correctness.distance`. With `finite`, returns null if any element of either tensor is not finite."""
        if value.dtype not in TYPES or expected.dtype not in (value.dtype, torch.float64) or not self.takes(value, expected):
            return None
        found = self.squares(expected)
        if found is None or (finite and found[1] < expected.numel()):
            return None
        rms = math.sqrt(found[0] / found[1]) if found[1] else 0.0
        worst = self._results(value, torch.float64)
        types, pointers = (TYPES[value.dtype], TYPES[expected.dtype]), (value.data_ptr(), expected.data_ptr())
        if self._library.farthest(*types, *pointers, value.numel(), rms, worst.data_ptr(), len(worst), self._stream(value)):
            return None
        far = float(worst.max())
        return None if finite and not math.isfinite(far) else far

    def same_bits(self, left: torch.Tensor, right: torch.Tensor) -> bool | None:
        if left.dtype != right.dtype or left.nbytes % 8 or not self.takes(left, right):
            return None
        found = self._results(left, torch.int32)
        if self._library.differ(left.data_ptr(), right.data_ptr(), left.nbytes // 8, found.data_ptr(), len(found), self._stream(left)):
            return None
        return not bool(found.any())

    def fingerprint(self, words: torch.Tensor, keys: tuple[int, int]) -> tuple[int, int] | None:
        """Returns both sums of `fingerprint.Fingerprint`, over four-byte words."""
        if words.dtype != torch.int32 or not self.takes(words):
            return None
        first, second = self._results(words, torch.int64), self._results(words, torch.int64)
        if self._library.fingerprint(words.data_ptr(), words.numel(), *keys, first.data_ptr(), second.data_ptr(), len(first), self._stream(words)):
            return None
        return int(first.sum()) % 2**64, int(second.sum()) % 2**64

    def _results(self, of: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Allocates one result per block."""
        return torch.empty(min(BLOCKS, -(-of.numel() // A_BLOCK)), dtype=dtype, device=of.device)

    @staticmethod
    def _stream(of: torch.Tensor) -> int | None:
        return torch.cuda.current_stream(of.device).cuda_stream if of.is_cuda else None


_passes: Passes | None = None


def use(passes: Passes | None) -> None:
    """Installs the kernels for this process."""
    global _passes
    _passes = passes


def squares(x: torch.Tensor) -> tuple[float, int] | None:
    return _passes.squares(x) if _passes is not None else None


def distance(value: torch.Tensor, expected: torch.Tensor, finite: bool = False) -> float | None:
    return _passes.distance(value, expected, finite) if _passes is not None else None


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool | None:
    return _passes.same_bits(left, right) if _passes is not None else None


def fingerprint(words: torch.Tensor, keys: tuple[int, int]) -> tuple[int, int] | None:
    return _passes.fingerprint(words, keys) if _passes is not None else None

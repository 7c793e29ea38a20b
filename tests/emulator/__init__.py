"""Runs printed CUDA kernels on the CPU: g++ builds them; threads of a block are fibers that meet at barriers and in warps."""

from tests.emulator.translate import as_cpp

__all__ = ["as_cpp"]

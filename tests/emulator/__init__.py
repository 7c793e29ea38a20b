"""Runs printed CUDA kernels on the CPU: g++ builds them; the threads of a block are fibers that synchronise at barriers and within warps."""

from tests.emulator.translate import as_cpp

__all__ = ["as_cpp"]

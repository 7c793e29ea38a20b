"""Kernels as CUDA C++ behind a plain C ABI."""

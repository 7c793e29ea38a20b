"""Kernels as Triton."""

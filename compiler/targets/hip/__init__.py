"""Kernels as HIP."""

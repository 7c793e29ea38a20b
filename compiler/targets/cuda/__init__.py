"""Prints kernels as CUDA C++."""

"""Prints kernels in Triton."""

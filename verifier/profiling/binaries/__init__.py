"""Reads the properties of compiled kernels from their code, without running them."""

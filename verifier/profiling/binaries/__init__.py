"""Reads what compiled kernels say about themselves, without running them."""

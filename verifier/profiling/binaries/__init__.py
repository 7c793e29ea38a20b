"""What compiled kernels say about themselves, without running them."""

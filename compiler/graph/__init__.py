"""A captured graph, rewritten and laid out; kernels as data."""

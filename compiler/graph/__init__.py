"""The captured graph, its rewrites and memory layouts, and the representation of kernels as data."""

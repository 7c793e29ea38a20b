"""KernelBench with the built-in compiler, over any number of GPUs and in as many sittings as it takes: `make bench-kernelbench`."""

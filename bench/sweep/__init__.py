"""KernelBench with the built-in compiler, over any number of GPUs and in as many sessions as it takes: `make bench-kernelbench`."""

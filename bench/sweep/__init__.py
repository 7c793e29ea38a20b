"""KernelBench with the built-in compiler, on any number of GPUs and in as many sessions as needed: `make bench-kernelbench`."""

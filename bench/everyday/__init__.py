"""The everyday suite: 48 tasks of the kind that users bring, none of them from KernelBench, and the code that measures them: `make
bench-everyday`."""

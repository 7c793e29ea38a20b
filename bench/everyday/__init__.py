"""The everyday suite: 48 tasks of what people bring, none of them in KernelBench, and what measures them: `make bench-everyday`."""

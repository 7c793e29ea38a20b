"""The everyday suite: 48 tasks such as users bring, none of them from KernelBench, and the code that measures them: `make bench-everyday`."""

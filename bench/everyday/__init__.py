"""The everyday suite: 48 tasks like those of users, none of them from KernelBench, and the code that measures them (`make bench-everyday`)."""

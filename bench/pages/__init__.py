"""Benchmarks of the pages in a real browser, with a database of 10,000 runs and 1,000,000 events: `make bench-pages`."""

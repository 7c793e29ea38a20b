"""The languages that kernels are printed in, a folder each: target.py says what a target is, lookup.py lists them."""

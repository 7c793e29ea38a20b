"""The languages in which kernels are printed, with one folder per language. target.py defines the interface, and lookup.py lists the targets."""

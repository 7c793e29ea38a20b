"""The languages in which kernels are printed, one folder per language. target.py defines the interface, and lookup.py lists the targets."""

"""The languages that kernels are printed in, a folder each."""

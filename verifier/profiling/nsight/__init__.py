"""Nsight Systems and Nsight Compute: found, run, read."""

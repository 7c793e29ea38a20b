"""Finds and runs Nsight Systems and Nsight Compute, and reads their output."""

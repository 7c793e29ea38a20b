"""Decides which operators become kernels, estimates their cost, and proposes the next changes."""

"""Decides whether an output is right: trials, bounds, expectations."""

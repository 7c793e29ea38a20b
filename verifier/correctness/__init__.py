"""Decides whether an output is right, by means of trials, bounds and expectations."""

"""Decides whether outputs are correct, using trials, bounds and expectations."""

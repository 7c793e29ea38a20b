"""Sends live events to the viewers that follow a run."""

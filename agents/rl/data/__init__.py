"""Data sets: from runs, and of synthetic tasks."""

"""Data sets from runs and from synthetic tasks."""

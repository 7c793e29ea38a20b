"""Captures a model's graph: whole, or the runs of statements that can be captured."""

"""Captures a model's graph, either whole or as the runs of statements that can be captured."""

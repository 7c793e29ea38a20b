"""Measures how long a call takes: processes, blocks, intervals."""

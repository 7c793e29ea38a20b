"""Runs loops over steps that forward has unrolled as one kernel, in which a block runs all steps of a few rows."""

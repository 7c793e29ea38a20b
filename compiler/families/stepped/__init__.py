"""Loops over steps that forward has unrolled, as one kernel that runs all steps of a few rows."""

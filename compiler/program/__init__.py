"""Prints a plan as one readable source file."""

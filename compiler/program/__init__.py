"""A plan as one readable source file."""

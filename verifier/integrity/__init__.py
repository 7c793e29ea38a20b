"""Gathers evidence that a program is what it claims to be, from its source and from its run."""

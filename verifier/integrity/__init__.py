"""Gathers evidence, from a program's source and from its execution, that the program is what it claims to be."""

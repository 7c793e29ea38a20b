"""Turns operators into the loops of one kernel, independently of the printer."""

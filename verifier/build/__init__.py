"""Runs each build that a program requests once, in a sandbox."""

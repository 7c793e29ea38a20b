"""Runs each build that a program requests, once and in a sandbox."""

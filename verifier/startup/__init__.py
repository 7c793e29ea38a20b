"""Starts a judge, and prepares a host for it."""

"""Runs tools that find wrong accesses, and reads their output."""

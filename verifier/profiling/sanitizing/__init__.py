"""Runs tools that detect invalid accesses, and reads their output."""

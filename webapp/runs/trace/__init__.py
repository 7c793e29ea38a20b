"""Writes, projects, reads and searches traces, and stores them on disk."""

"""Streams live events to a run's viewers."""

"""Recurrent layers as one kernel."""

"""Stitchwork from a terminal, a script or a coding agent. Needs only httpx and the standard library, so it runs on a laptop without torch or
Django."""

__version__ = "0.1.0"

"""What can be chosen by name, for the command line too, which wants it before it has imported the rest."""

from __future__ import annotations

from typing import Literal

Section = Literal["speed-of-light", "memory", "occupancy", "launch", "stalls", "scheduler", "instructions", "source"]
SanitizerTool = Literal["memcheck", "racecheck", "initcheck", "synccheck", "address", "undefined"]

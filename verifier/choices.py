"""Options that are chosen by name. The command line needs them before it has imported the other modules."""

from __future__ import annotations

from typing import Literal

Section = Literal["speed-of-light", "memory", "occupancy", "launch", "stalls", "scheduler", "instructions", "source"]
SanitizerTool = Literal["memcheck", "racecheck", "initcheck", "synccheck", "address", "undefined"]

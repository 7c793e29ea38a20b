"""The knowledge that a run gains from its own attempts (`Memory`) and from earlier runs (`Inspirations`)."""

from __future__ import annotations

from agents.memory.fingerprints import fingerprint
from agents.memory.inspirations import Inspiration, Inspirations, Split, recall
from agents.memory.within import Memory

__all__ = ["Inspiration", "Inspirations", "Memory", "Split", "fingerprint", "recall"]

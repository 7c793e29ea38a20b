"""Instructions for each strategy in each language: prose in `how_to/FAMILY.md`, with one heading per strategy and a subheading per language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "how_to"
LANGUAGES = ("cuda", "triton", "cpp")

# What each family changes. A search on a plateau tries a different family before it gives up.
FAMILIES = {
    "fusion": "which operators share a kernel",
    "algorithm": "what is computed, and how often",
    "reuse": "where data is kept between uses",
    "access": "how data is read and written",
    "parallelism": "how work is divided among blocks, warps and threads",
    "arithmetic": "which instructions do the arithmetic",
    "synchronisation": "where threads wait for each other",
    "launching": "what the host does during a call",
    "space": "library or custom kernel, data layout and tuning parameters",
}


@dataclass(frozen=True)
class HowTo:
    family: str
    cuda: str = ""
    triton: str = ""
    cpp: str = ""


@cache
def how_tos() -> dict[str, HowTo]:
    """Returns the instructions, keyed by strategy. Raises `ValueError` with the location if a file is malformed."""
    found: dict[str, HowTo] = {}
    for family in FAMILIES:
        path = FOLDER / f"{family}.md"
        for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            name, *sections = re.split(r"^## ", part, flags=re.M)
            texts = {}
            for section in sections:
                language, _, text = section.partition("\n")
                texts[language.strip()] = " ".join(text.split())
            unknown = set(texts) - set(LANGUAGES)
            if unknown or name.strip() in found:
                raise ValueError(f"{path.name}, {name.strip()}: {f'no languages: {unknown}' if unknown else 'it stands there twice'}")
            found[name.strip()] = HowTo(family, **texts)
    return found

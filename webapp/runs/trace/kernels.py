"""Extracts kernel names from a program's text, so that people can find the program by them. The program is neither run nor parsed."""

from __future__ import annotations

import re

from webapp.runs import artefacts
from webapp.runs.artefacts import ArtefactMissing
from webapp.runs.models import Artefact

MOST_BYTES = 1_000_000  # size limit of the programs that are read
MOST_NAMES = 64
LONGEST = 120
# In order: a CUDA C++ kernel, a C++ function that Python calls by name, and a Triton kernel.
NAMES = re.compile(
    r"__global__\s+(?:(?:__launch_bounds__|__cluster_dims__)\s*\([^)]{0,80}\)\s*)*void\s+(?:__launch_bounds__\s*\([^)]{0,80}\)\s*)?(\w+)\s*\("
    r"|extern\s+\"C\"\s+(?:__attribute__\(\([^)]{0,80}\)\)\s*)?(?:void|int)\s+(\w+)\s*\("
    r"|@triton\.(?:jit|autotune)\b[^\n]{0,400}\n(?:@[^\n]{0,400}\n)*\s*def\s+(\w+)\s*\("
)


def kernel_names(source: str) -> list[str]:
    """Return each kernel name once, in order of appearance."""
    found = dict.fromkeys(next(filter(None, match.groups()))[:LONGEST] for match in NAMES.finditer(source))
    return list(found)[:MOST_NAMES]


def names_in(program: Artefact | None) -> str:
    """Return the kernel names of a stored program, separated by spaces, or "" if the program is missing or too large."""
    if program is None or program.bytes > MOST_BYTES:
        return ""
    try:
        return " ".join(kernel_names(artefacts.read(program).decode("utf-8", "replace")))
    except ArtefactMissing:
        return ""

"""Keeps a precompiled copy of the standard header that every program for the CPU includes first: reading the header takes half the time of such a
build."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests import kept
from verifier.build.raw import CPP_FLAGS

FIRST = "cmath"


@cache
def folder() -> Path:
    """Returns a folder for `CPATH`. g++ reads the precompiled form if a source includes `FIRST` before anything else and is compiled with the flags
    of a build; otherwise, it reads the header itself. The resulting library is identical either way."""
    found = kept.folder("headers-" + kept.key(kept.compiler(), FIRST, *CPP_FLAGS)[:16])
    kept.made(found / f"{FIRST}.gch", _precompile)
    return found


def _precompile(place: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "first.h")
        source.write_text(f"#include <{FIRST}>\n")
        subprocess.run(["g++", *CPP_FLAGS, "-x", "c++-header", str(source), "-o", str(place)], check=True)

"""Determines from a program's text which kernels each launch runs, because kernels with the same operators cannot be distinguished by name alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

CALL = re.compile(r"\bkernels\.(\w+)\(|(?<!def )\blaunch_(\w+)\(")
C_LAUNCHER = re.compile(r'^extern "C" \w+ (\w+)\((.*?)^\}', re.M | re.S)
C_LAUNCH = re.compile(r"\b(\w+(?:<[^;{}<>]*>)?)<<<|\bcudaLaunch\w*Kernel\w*\(\s*(?:\(\w[\w ]*\*\)\s*)?(\w+)")
TRITON_LAUNCHER = re.compile(r"^def launch_(\w+)\((.*?)(?=^\S|\Z)", re.M | re.S)
TRITON_LAUNCH = re.compile(r"\b(\w+)\[\(")


@dataclass(frozen=True)
class Launch:
    name: str  # name of the launcher
    kernels: tuple[str, ...]  # the kernels that it starts ("kernel<its, arguments>" for templates), or itself if it is not a launcher (C++)


def launches(source: str) -> list[Launch]:
    """Returns the launches in the order in which `forward` makes them."""
    text, found, forward = source.partition("\nclass ModelNew")
    if not found:
        return []
    started = {match[1]: tuple(a or b for a, b in C_LAUNCH.findall(match[2])) for match in C_LAUNCHER.finditer(text)}
    started |= {match[1]: tuple(TRITON_LAUNCH.findall(match[2])) for match in TRITON_LAUNCHER.finditer(text)}
    names = [a or b for a, b in CALL.findall(forward)]
    return [Launch(name, started.get(name) or (name,)) for name in names]

"""All targets by language. To add a target, create a folder next to this file and an entry here."""

from __future__ import annotations

from typing import Any

from compiler.figures import DeviceFigures
from compiler.targets.cpp.target import Cpp
from compiler.targets.cuda.target import Cuda
from compiler.targets.target import Target
from compiler.targets.triton.target import Triton

TARGETS: dict[str, Target[Any]] = {target.language: target for target in (Cuda(), Cpp(), Triton())}
OWN = {"cuda": "cuda", "cpu": "cpp"}  # kind of device -> default language


def target_of(language: str) -> Target[Any]:
    return TARGETS[language]


def own_language(figures: DeviceFigures) -> str:
    return OWN[figures.kind]

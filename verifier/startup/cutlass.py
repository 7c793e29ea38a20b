"""Finds CUTLASS headers on a host and exposes them to builders, because nothing is downloaded while a program is judged.

Programs can refer to the headers in three ways: `#include <cutlass/...>` alone, a folder named by CUTLASS_PATH, and a clone next to the program
(`Path(__file__).parent / "cutlass"`).
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from functools import cache
from pathlib import Path

from verifier.devices.base import Bind

SHOWN = "/opt/cutlass"  # their path in a sandbox
NAMES = ("CUTLASS_PATH", "CUTLASS_HOME", "CUTLASS_DIR", "CUTLASS_ROOT")
INCLUDES = ("CUTLASS_INCLUDE", "CUTLASS_INCLUDE_DIR")  # other variables with the folder's name, which programs also read
BESIDE = ("cutlass", "third_party/cutlass")
INSTALL = f"{sys.executable} -m pip install --no-deps nvidia-cutlass, or CUTLASS_PATH=<a clone of github.com/NVIDIA/cutlass>"
_FOLDERS = ("/usr/local/cutlass", "/opt/cutlass", "/opt/pytorch/pytorch/third_party/cutlass", "/usr/local/cuda", "/usr/local", "/usr")
_PACKAGES = ("cutlass_library/source", "flashinfer/data/cutlass", "nvidia/cutlass")


def _candidates() -> list[str]:
    packages = [os.path.join(sysconfig.get_paths()[name], package) for name in ("purelib", "platlib") for package in _PACKAGES]
    return [*(os.environ.get(name, "") for name in NAMES), *packages, os.environ.get("CUDA_HOME", ""), *_FOLDERS]


@cache
def found() -> str:
    """Returns the folder whose `include` contains them, or ""."""
    return next((os.path.realpath(folder) for folder in _candidates() if folder and holds(folder)), "")


def holds(folder: str) -> bool:
    return all(os.path.isfile(os.path.join(folder, "include", header)) for header in ("cutlass/cutlass.h", "cute/tensor.hpp"))


def version() -> str:
    """Returns the version from the CUTLASS header, such as "4.2.0", or ""."""
    try:
        text = Path(found(), "include/cutlass/version.h").read_text() if found() else ""
    except OSError:
        return ""
    numbers = dict(re.findall(r"#define CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)", text))
    return ".".join(numbers.get(name, "0") for name in ("MAJOR", "MINOR", "PATCH")) if numbers else ""


def signature() -> list[str]:
    """Returns a signature of the headers that builds may include, for use in the builds' keys; empty if there are no headers."""
    return [f"CUTLASS {version()} at {found()}"] if found() else []


def bind() -> list[Bind]:
    return [Bind(found(), SHOWN)] if found() else []


def variables(wrapped: bool) -> dict[str, str]:
    root = SHOWN if wrapped else found()
    return dict.fromkeys(NAMES, root) | dict.fromkeys(INCLUDES, f"{root}/include") if found() else {}


def show(home: str) -> None:
    """Exposes the headers in a party that builds or looks up builds. Compilers search them after all other folders, and programs find them in their
    own folder."""
    root = os.environ.get(NAMES[0], "")
    if not root or not holds(root):
        return
    folders = [os.environ.get("CPLUS_INCLUDE_PATH", ""), f"{root}/include", f"{root}/tools/util/include"]
    os.environ["CPLUS_INCLUDE_PATH"] = os.pathsep.join(filter(None, folders))
    for name in BESIDE:
        path = Path(home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(root)

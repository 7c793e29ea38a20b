"""Compiles the kernels of many programs into a few libraries, because compiling a batch costs little more than compiling a single program.

Each program's source is in a separate namespace, and the names of its launchers end in the program's number. A compiled kernel does not depend on the
other programs of its batch. The flags are exactly those that the programs' own build helper uses.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from verifier.build.raw import RawRequest, raw_requests

_HELPER = (Path(__file__).resolve().parents[2] / "verifier" / "build" / "inline_helper.py").read_text().rstrip("\n")
_LAUNCHER = re.compile(r'^extern "C" (int|void) (\w+)\(', re.MULTILINE)
COMPILE_SECONDS = 300


class BatchFailed(RuntimeError):
    """Raised if the compiler refused a batch; the message is the compiler's output."""


def request_of(program: str) -> RawRequest | None:
    """Returns the request that the program makes to its build helper, or None if it has no generated kernels."""
    requests = raw_requests(ast.parse(program))
    return requests[0] if requests else None


def batch_source(requests: Mapping[int, RawRequest]) -> str:
    """Makes one translation unit for the programs with these numbers."""
    includes: dict[str, None] = {}
    parts = []
    for number, request in requests.items():
        lines = request.source.splitlines()
        includes.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        numbered = _LAUNCHER.sub(rf'extern "C" \1 \2__{number}(', body)
        parts.append(f"namespace program_{number} {{\n{numbered}\n}}\n")
    return "\n".join([*includes, "", *parts])


def digest(requests: Mapping[int, RawRequest]) -> str:
    """Returns a digest of the compiled content, including the programs' numbers."""
    flags = "\0".join(next(iter(requests.values())).flags)
    return hashlib.sha256(f"{flags}\0{batch_source(requests)}".encode()).hexdigest()[:16]


def compile_batch(requests: Mapping[int, RawRequest], compiler: str, arch: str, library: Path) -> None:
    """Compiles a batch. `arch` is nvcc's name, such as "sm_90"; g++ ignores it. Raises `BatchFailed`."""
    if library.exists():
        return
    first = next(iter(requests.values()))
    unit = library.with_suffix(".cu" if first.language == "cuda" else ".cpp")
    unit.write_text(batch_source(requests))
    scratch = library.with_suffix(".new")
    done = subprocess.run([compiler, *first.options(arch), str(unit), "-o", str(scratch)], capture_output=True, text=True, timeout=COMPILE_SECONDS)
    if done.returncode != 0:
        raise BatchFailed(done.stderr[-4000:] or done.stdout[-4000:])
    scratch.replace(library)


def launchers(library: ctypes.CDLL, request: RawRequest, number: int) -> SimpleNamespace:
    """Returns the program's launchers under their own names, as its build helper would."""
    return SimpleNamespace(**{name: library[f"{name}__{number}"] for name in launcher_names(request)})


def launcher_names(request: RawRequest) -> frozenset[str]:
    return frozenset(name for _, name in _LAUNCHER.findall(request.source))


def imported(program: str, kernels: SimpleNamespace | None) -> dict:
    """Imports a program whose kernels are already compiled. Use this only for programs of our own compiler, because the program is executed here."""
    if _HELPER not in program and kernels is not None:
        raise BatchFailed("the program does not hold the build helper that this version knows")
    module = {"__name__": "program", "stitch_build": lambda language, source, flags=(): kernels}
    exec(compile(program.replace(_HELPER, ""), "program.py", "exec"), module)
    return module


def batches(numbers: Sequence[int], size: int) -> list[list[int]]:
    return [list(numbers[at : at + size]) for at in range(0, len(numbers), size)]

"""Languages whose kernels are compiled into a library with a plain C ABI, in which launchers take addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from compiler.kernel.naming import RESERVED_IN_C, free
from compiler.targets.target import Names, S, Target

BUILDER = Path(__file__).resolve().parents[2] / "verifier" / "build" / "inline_helper.py"
CTYPES = re.compile(r"import ctypes\b")


class Library(Target[S]):
    """A target with compiled launchers. Launchers return an error code if the target has a `check` function for it; otherwise they return nothing."""

    reserved = RESERVED_IN_C
    builder = BUILDER.read_text()
    trailing: tuple[str, ...] = ()  # arguments that every launcher takes after the pointers

    def imports(self, task: list[str], source: str) -> list[str]:
        if any(CTYPES.match(line) for line in task):
            return task
        future = [line for line in task if line.startswith("from __future__")]
        return [*future, "import ctypes", "", *(line for line in task if line not in future)]

    def module(self, source: str, pointers: Mapping[str, int], flags: tuple[str, ...], names: Names) -> str:
        counts = ", ".join(f'"{name}": {count + len(self.trailing)}' for name, count in pointers.items())
        kernels, (text, name, count) = names.helpers["kernels"], (free(word, names.bound) for word in ("SOURCE", "name", "pointers"))
        return (
            f'\n{text} = r"""\n{source}"""\n\n{kernels} = stitch_build("{self.language}", {text}{f", {flags!r}" if flags else ""})\n'
            f"for {name}, {count} in {{{counts}}}.items():\n"
            f"    getattr({kernels}, {name}).argtypes = [ctypes.c_void_p] * {count}\n"
            f"    getattr({kernels}, {name}).restype = {'ctypes.c_int' if self.check else 'None'}\n"
        )

    def pointer(self, variable: str, shift: int = 0) -> str:
        return f"{variable}.data_ptr()" + (f" + {shift}" if shift else "")

    def call(self, name: str, pointers: list[str], names: Names) -> str:
        call = f"{names.helpers['kernels']}.{name}({', '.join([*pointers, *self.trailing])})"
        return f"{names.helpers['check']}({call})" if self.check else call

"""Reads the contents of a program's compiled libraries: kernels, exported functions and imports. Libraries are read as data; nothing is loaded or
run.

Kernel names are taken from the machine code itself (a section `.text.<kernel>` in each cubin). If the toolkit compressed the code, they are the names
under which the host part registers the kernels.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_KERNEL = re.compile(rb"\.text\.([A-Za-z_$][A-Za-z0-9_$]{0,1000})\0")
_NAME = re.compile(rb"(?<![A-Za-z0-9_$.])(_Z[A-Za-z0-9_$]{2,1000})\0")
_SYMTAB, _DYNSYM, _DYNAMIC = 2, 11, 6
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _EXECUTE = 1, 1
# Arithmetic that a library does for the program: BLAS, DNN and ATen's own implementations. Calls to it bypass torch's dispatcher, so no profiler sees
# them.
_COMPUTE = re.compile(
    r"^(?:cblas_|[sdcz]gemm|[sdcz]gemv|mkl_|vs[A-Z]|dnnl_|mkldnn_|zendnn|openblas|cublas|cudnn|cusparse|cusolver|cufft|nvrtcCompile|"
    r"_ZN4dnnl|_ZN2at6native(?!.*(?:empty|resize|copy))|_ZN2at(?:3cpu|4cuda)\d+(?!empty|getCurrent|set|CUDA|warp|detail))"
)
_LOOKUP = re.compile(r"^(?:dlopen|dlmopen|dlsym|dlvsym|dl_iterate_phdr)$")


@dataclass
class Library:
    """The symbols in one ELF shared library."""

    exports: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    cuda: bool = False  # whether it contains device code

    @property
    def compute_imports(self) -> list[str]:
        """Returns imported functions that do arithmetic or that look up such functions at run time."""
        # The static CUDA runtime uses these functions to find its driver.
        found = {name for name in self.imports if _COMPUTE.match(name)} | (
            set() if self.cuda else {name for name in self.imports if _LOOKUP.match(name)}
        )
        return sorted(found)


def libraries(index: Iterable[tuple[str, int]], data: bytes) -> list[Library]:
    """Reads the libraries from a program's artefacts. A file that is not valid ELF is treated as empty."""
    found, at = [], 0
    for _, size in index:
        found.append(read_library(data[at : at + size]))
        at += size
    return found


def read_library(data: bytes) -> Library:
    library = Library()
    try:
        sections = _sections(data)
        for kind, _, offset, size, link, _ in sections:
            if kind in (_SYMTAB, _DYNSYM):
                _symbols(data, offset, size, sections[link], library, dynamic=kind == _DYNSYM)
        fat = [data[offset : offset + size] for _, name, offset, size, _, _ in sections if name in (".nv_fatbin", "__nv_relfatbin")]
        constants = [data[offset : offset + size] for _, name, offset, size, _, _ in sections if name == ".rodata"]
    except (struct.error, IndexError, ValueError):
        return Library()
    if fat:
        library.cuda = True
        library.kernels = {name.decode() for part in fat for name in _KERNEL.findall(part)}
        library.kernels |= {name.decode() for part in constants for name in _NAME.findall(part)}
    return library


class Code:
    """The machine code of one ELF shared library: the executable parts of the file, and the start and end of each function."""

    def __init__(
        self, data: bytes, segments: list[tuple[int, int, int]], functions: list[tuple[int, int, str]], stubs: Iterable[tuple[int, int]] = ()
    ):
        self.data = data
        self.stubs = sorted(stubs)  # offset and size of the table of jumps to functions in other libraries
        self.segments = segments  # offset, address and size of each executable segment
        self._functions = sorted(functions)  # offset, size, name
        self._offsets = [offset for offset, _, _ in self._functions]

    def executable(self, offset: int, size: int) -> bytes:
        """Returns the code in a mapping of `size` bytes from this file offset. The result is empty if there is none."""
        for begin, _, length in self.segments:
            if offset <= begin < offset + size or begin <= offset < begin + length:
                return self.data[offset : min(offset + size, begin + length)]
        return b""

    def function(self, offset: int) -> str:
        """Returns the name of the function at a file offset, without the suffix for parts that the compiler has split off. The result is empty if no
        symbol covers the offset."""
        number = bisect_right(self._offsets, offset) - 1
        if number < 0 or offset >= self._offsets[number] + max(self._functions[number][1], 1):
            return ""
        return self._functions[number][2].partition(".")[0]

    def entries(self) -> list[tuple[str, int]]:
        """Returns functions, and their outlined OpenMP parts, with their start offsets."""
        return [
            (name.partition(".")[0], offset) for offset, _, name in self._functions if "." not in name or "._omp_fn." in name or ".constprop" in name
        ]


def computes(name: str) -> bool:
    """Returns whether a function with this name is a library function that does arithmetic, regardless of where its code was linked."""
    return bool(_COMPUTE.match(name))


def read_code(data: bytes) -> Code:
    """Reads the machine code of a library. A file that is not valid ELF contains no code."""
    try:
        segments = _segments(data)
        sections = _sections(data)
        wanted = [row for row in sections if row[0] == _SYMTAB] or [row for row in sections if row[0] == _DYNSYM]
        functions = [entry for row in wanted for entry in _functions(data, row[2], row[3], sections[row[4]], segments)]
    except (struct.error, IndexError, ValueError):
        return Code(b"", [], [])
    return Code(data, segments, functions, [(row[2], row[3]) for row in sections if row[1].startswith(".plt") and row[3]])


def _segments(data: bytes) -> list[tuple[int, int, int]]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x20)
    entry, count = struct.unpack_from("<HH", data, 0x36)
    rows = [_SEGMENT.unpack_from(data, table + number * entry) for number in range(count)]
    return [(offset, address, size) for kind, flags, offset, address, _, size, _, _ in rows if kind == _LOAD and flags & _EXECUTE]


def _functions(
    data: bytes, offset: int, size: int, strings: tuple[int, str, int, int, int, int], segments: list[tuple[int, int, int]]
) -> Iterator[tuple[int, int, str]]:
    for at in range(offset, min(offset + size, len(data)) - _SYMBOL.size + 1, _SYMBOL.size):
        name_at, info, _, section, address, length = _SYMBOL.unpack_from(data, at)
        if name_at and section and info & 15 in (2, 10):
            for begin, first, held in segments:
                if first <= address < first + held:
                    yield begin + address - first, length, _text(data, strings[2] + name_at)


def _sections(data: bytes) -> list[tuple[int, str, int, int, int, int]]:
    """Yields the kind, name, offset, size, link and entry size of each section in a 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
    if entry != _SECTION.size:
        raise ValueError("unknown section headers")
    rows = [_SECTION.unpack_from(data, table + number * entry) for number in range(count)]
    text = rows[names][4]
    return [(row[1], _text(data, text + row[0]), row[4], row[5] if row[1] != 8 else 0, row[6], row[9]) for row in rows]


def _symbols(data: bytes, offset: int, size: int, strings: tuple[int, str, int, int, int, int], library: Library, dynamic: bool) -> None:
    for at in range(offset, min(offset + size, len(data)) - _SYMBOL.size + 1, _SYMBOL.size):
        name_at, info, _, section, _, _ = _SYMBOL.unpack_from(data, at)
        if not name_at or info & 15 > 2 and info & 15 != 10:  # only objects and functions, including indirect functions
            continue
        name = _text(data, strings[2] + name_at)
        if section:
            if dynamic:
                library.exports.add(name)
        elif dynamic:
            library.imports.add(name.split("@")[0])


def _text(data: bytes, at: int) -> str:
    end = data.index(b"\0", at, at + 8192)
    return data[at:end].decode("ascii", "replace")

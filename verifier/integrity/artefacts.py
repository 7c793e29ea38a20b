"""What a program's compiled libraries hold: kernels, exported functions, and what they import. Read as data; nothing is loaded or run.

The names of kernels come from the machine code itself (a section `.text.<kernel>` of each cubin), or, where the toolkit compressed it, from the names
under which the host part registers them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_KERNEL = re.compile(rb"\.text\.([A-Za-z_$][A-Za-z0-9_$]{0,1000})\0")
_NAME = re.compile(rb"(?<![A-Za-z0-9_$.])(_Z[A-Za-z0-9_$]{2,1000})\0")
_SYMTAB, _DYNSYM, _DYNAMIC = 2, 11, 6
# Arithmetic that a library does for the program: BLAS, DNN and ATen's own implementations, past torch's dispatcher, where no profiler sees them.
_COMPUTE = re.compile(
    r"^(?:cblas_|[sdcz]gemm|[sdcz]gemv|mkl_|vs[A-Z]|dnnl_|mkldnn_|zendnn|openblas|cublas|cudnn|cusparse|cusolver|cufft|nvrtcCompile|"
    r"_ZN4dnnl|_ZN2at6native(?!.*(?:empty|resize|copy))|_ZN2at(?:3cpu|4cuda)\d+(?!empty|getCurrent|set|CUDA|warp|detail))"
)
_LOOKUP = re.compile(r"^(?:dlopen|dlmopen|dlsym|dlvsym|dl_iterate_phdr)$")


@dataclass
class Library:
    """Symbols of one ELF shared library."""

    exports: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    cuda: bool = False  # it holds device code

    @property
    def compute_imports(self) -> list[str]:
        """Functions of other libraries that do arithmetic, or that find such functions at run time."""
        # The static CUDA runtime finds its driver by these.
        found = {name for name in self.imports if _COMPUTE.match(name)} | (
            set() if self.cuda else {name for name in self.imports if _LOOKUP.match(name)}
        )
        return sorted(found)


def libraries(index: Iterable[tuple[str, int]], data: bytes) -> list[Library]:
    """Those of a program's artefacts; what is not a sound ELF file counts as an empty one."""
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


def _sections(data: bytes) -> list[tuple[int, str, int, int, int, int]]:
    """Kind, name, offset, size, link and entry size of each section of a 64-bit little-endian ELF file."""
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
        if not name_at or info & 15 > 2 and info & 15 != 10:  # objects and functions, also indirect ones
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

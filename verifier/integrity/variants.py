"""On a GPU: creates a variant of the program in which some kernels return immediately.

In machine code from the builder, the first instruction is replaced by EXIT. A kernel that is compiled at run time (Triton, NVRTC, PTX) gets an
empty body or a `return` in its source.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verifier.build.artefacts import Artefacts
from verifier.profiling.own_kernels import OwnKernels, jit_functions

# Instructions for compute capability 7.0 and later have 128 bits; the low twelve bits are the opcode.
EXIT = bytes.fromhex("4d790000000000000000800300ea0f00")
_EXIT_CODE, _WORD = 0x94D, 16
_CUDA_MACHINE = 190
_ELF = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_FUNCTION = ".text."


@dataclass(frozen=True)
class Variant:
    """The source and libraries that a runner imports in place of the program."""

    source: str
    artefacts: Artefacts


def without(kernels: Iterable[str], source: str, artefacts: Artefacts) -> Variant | None:
    """Returns the program with all kernels of these unqualified names emptied. Returns null if any of them is found neither in machine code nor in
    source."""
    wanted = set(kernels)
    data, done = emptied(artefacts, wanted)
    text = source
    for name in sorted(wanted - done):
        changed = _without_triton(text, name)
        if changed is None:
            changed = _without_body(text, name)
        if changed is None:
            changed = _without_entry(text, name)
        if changed is None:
            return None
        text = changed
    return Variant(text, Artefacts(artefacts.index, data, artefacts.seconds))


def emptied(artefacts: Artefacts, kernels: set[str]) -> tuple[bytes, set[str]]:
    """Returns the libraries with an EXIT at the entry of every instance of these kernels, and the names that were found. Compressed code yields
    none."""
    data, done = bytearray(artefacts.data), set()
    at = 0
    for _, size in artefacts.index:
        for symbol, begin, length in _device_functions(artefacts.data[at : at + size]):
            name = OwnKernels.short(symbol)
            if name in kernels and _understood(artefacts.data[at + begin : at + begin + length]):
                data[at + begin : at + begin + _WORD] = EXIT
                done.add(name)
        at += size
    return bytes(data), done


def _understood(code: bytes) -> bool:
    """Returns whether a kernel ends the way that kernels of this instruction set do."""
    return any(struct.unpack_from("<Q", code, at)[0] & 0xFFF == _EXIT_CODE for at in range(0, len(code) - _WORD + 1, _WORD))


def _device_functions(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yields symbol, offset and size of each kernel in the uncompressed cubins of a library."""
    at = data.find(_ELF, 1)
    while at > 0:
        try:
            if struct.unpack_from("<H", data, at + 18)[0] == _CUDA_MACHINE:
                yield from _sections_of(data, at)
        except (struct.error, IndexError, ValueError):
            pass  # data that only looks like an ELF file
        at = data.find(_ELF, at + 1)


def _sections_of(data: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    (table,) = struct.unpack_from("<Q", data, at + 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, at + 0x3A)
    if entry != _SECTION.size:
        return
    rows = [_SECTION.unpack_from(data, at + table + number * entry) for number in range(count)]
    strings = at + rows[names][4]
    for row in rows:
        begin = strings + row[0]
        name = data[begin : data.index(b"\0", begin, begin + 8192)].decode("ascii", "replace")
        if name.startswith(_FUNCTION) and row[5] >= _WORD and at + row[4] + row[5] <= len(data):
            yield name.removeprefix(_FUNCTION), at + row[4], row[5]


def _without_triton(source: str, name: str) -> str | None:
    """Empties the body of a function that Triton compiles; line numbers are preserved."""
    lines = source.splitlines(keepends=True)
    for node in jit_functions(ast.parse(source)):
        if node.name != name:
            continue
        first, last = node.body[0], node.body[-1]
        if first.lineno <= node.lineno or last.end_lineno is None:
            return None
        count = last.end_lineno - first.lineno + 1
        lines[first.lineno - 1 : last.end_lineno] = [" " * first.col_offset + "pass\n", *["\n"] * (count - 1)]
        return "".join(lines)
    return None


def _without_body(source: str, name: str) -> str | None:
    """Inserts a `return` at the beginning of every `__global__` function with that name whose text is in the source."""
    ends = []
    for match in re.finditer(rf"__global__\b[^;{{}}]*?\b{re.escape(name)}\s*\(", source):
        at, depth = match.end(), 1
        while at < len(source) and depth:
            depth += {"(": 1, ")": -1}.get(source[at], 0)
            at += 1
        body = re.compile(r"\s*\{").match(source, at)
        if body is not None:
            ends.append(body.end())
    for end in reversed(ends):
        source = source[:end] + " return;" + source[end:]
    return source if ends else None


def _without_entry(source: str, name: str) -> str | None:
    """Inserts a `ret` at the beginning of the PTX kernel with that name whose text is in the source."""
    changed, count = re.subn(rf"(\.entry\s+{re.escape(name)}\s*\([^{{}};]*\{{)", r"\1 ret;", source)
    return changed if count else None

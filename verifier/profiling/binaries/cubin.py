"""Finds GPU code in shared libraries and objects made by nvcc, in fat binaries and in cubins, and reads its headers without CUDA's tools.

A host file stores fat binaries in its `.nv_fatbin` section; each is a list of entries (PTX or a cubin, plain or compressed with LZ4 or zstd). A cubin
is an ELF file whose `.nv.info` sections hold attributes. The layouts match the output of `cuobjdump -elf`. The bytes come from a builder, so every
offset is validated.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

FATBIN_MAGIC = 0xBA55ED50
MAX_CODE = 256 << 20  # maximum size in bytes of all unpacked cubins of a file
_KIND_CUBIN = 2
_COMPRESSED_LZ4, _COMPRESSED_ZSTD = 0x2000, 0x8000
_EM_CUDA = 190
_ENTRY = 0x10  # in a symbol's st_other: marks a kernel rather than a device function
_FRAME_SIZE, _REGCOUNT, _MAX_THREADS, _REQUIRED_THREADS, _MIN_STACK = 0x11, 0x2F, 0x05, 0x10, 0x12
_RESERVED_SHARED = 1024  # from sm_90 on, a kernel's section begins with a part reserved by the system


class CubinError(ValueError):
    """Raised if a file contains no readable GPU code; the message gives the reason."""


@dataclass(frozen=True)
class CubinKernel:
    """One kernel of a cubin, as described by its headers. Sizes are in bytes."""

    symbol: str
    arch: int  # 90 for sm_90
    registers: int  # per thread
    stack: int  # per thread, in local memory
    shared: int  # static, per block, excluding the part reserved by the system
    max_threads: int | None  # threads per block, from __launch_bounds__ or a required size
    code: bytes


def kernels(data: bytes) -> list[CubinKernel]:
    """Returns all kernels in a file; the list is empty for a file without GPU code. Raises `CubinError`."""
    try:
        return [kernel for cubin in cubins(data) for kernel in _kernels(cubin)]
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise CubinError(f"the GPU code is cut short or damaged: {error}") from None


def cubins(data: bytes) -> Iterator[bytes]:
    """Yields the cubins in a cubin, a fat binary, or a host file (shared library, executable, object)."""
    if data[:4] == b"\x7fELF":
        if _machine(data) == _EM_CUDA:
            yield data
            return
        for section in _sections(data):
            if section.name in (".nv_fatbin", "__nv_relfatbin"):
                yield from _unpacked(section.data)
    elif len(data) >= 4 and struct.unpack_from("<I", data)[0] == FATBIN_MAGIC:
        yield from _unpacked(data)


# Fat binaries


def _unpacked(data: bytes) -> Iterator[bytes]:
    magic = struct.pack("<I", FATBIN_MAGIC)
    at = data.find(magic)
    total = 0
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + header, min(at + header + size, len(data))
        while entry + 16 <= end:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, entry)
            if header < 16 or entry + header + size > len(data):
                raise CubinError("a fat binary names more bytes than it has")
            if kind == _KIND_CUBIN:
                cubin = _decompressed(data, entry, header, size)
                total += len(cubin)
                if total > MAX_CODE:
                    raise CubinError(f"the GPU code is larger than {MAX_CODE >> 20} MiB")
                yield cubin
            entry += header + size
        at = data.find(magic, max(end, at + 4))


def _decompressed(data: bytes, entry: int, header: int, size: int) -> bytes:
    body = data[entry + header : entry + header + size]
    if header < 64:
        return body
    compressed = struct.unpack_from("<I", data, entry + 16)[0]
    flags, full = struct.unpack_from("<Q8xQ", data, entry + 40)
    if not flags & (_COMPRESSED_LZ4 | _COMPRESSED_ZSTD):
        return body
    if full > MAX_CODE or compressed > size:
        raise CubinError("a fat binary's entry has an impossible size")
    return (_zstd if flags & _COMPRESSED_ZSTD else _lz4)(body[:compressed], full)


@cache
def _libzstd() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        return None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    return library


def _zstd(body: bytes, full: int) -> bytes:
    library = _libzstd()
    if library is None:
        raise CubinError("the GPU code is compressed with zstd, and this host has no libzstd.so.1: apt-get install libzstd1")
    out = ctypes.create_string_buffer(full)
    if library.ZSTD_decompress(out, full, body, len(body)) != full:
        raise CubinError("compressed GPU code is damaged")
    return out.raw


def _lz4(body: bytes, full: int) -> bytes:
    """Unpacks one LZ4 block, in which literals alternate with copies from earlier output."""
    out = bytearray()
    at = 0
    while at < len(body):
        token = body[at]
        length, at = _lz4_length(body, at + 1, token >> 4)
        out += body[at : at + length]
        at += length
        if at >= len(body):
            break
        offset = body[at] | body[at + 1] << 8
        length, at = _lz4_length(body, at + 2, token & 15)
        if not 0 < offset <= len(out) or len(out) + length + 4 > full:
            raise CubinError("compressed GPU code is damaged")
        length += 4
        out += (out[-offset:] * (length // offset + 1))[:length]  # a copy may overlap its own output
    if len(out) != full:
        raise CubinError("compressed GPU code is damaged")
    return bytes(out)


def _lz4_length(body: bytes, at: int, nibble: int) -> tuple[int, int]:
    length = nibble
    while nibble == 15:
        length += body[at]
        at += 1
        if body[at - 1] != 255:
            break
    return length, at


# ELF


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    size: int
    data: bytes  # empty if the file contains none (NOBITS)


def _machine(data: bytes) -> int:
    machine: int = struct.unpack_from("<H", data, 18)[0]
    return machine


def _sections(data: bytes) -> list[_Section]:
    if data[4] != 2:
        raise CubinError("this is not a 64-bit ELF file")
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<3H", data, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, offset + index * size) for index in range(count)]
    if not raw or names_at >= len(raw):
        return []
    names = data[raw[names_at][4] : raw[names_at][4] + raw[names_at][5]]
    found = []
    for name, kind, _, _, at, length, *_ in raw:
        held = b"" if kind == 8 else data[at : at + length]
        if kind != 8 and len(held) != length:
            raise CubinError("an ELF section lies outside its file")
        found.append(_Section(_string(names, name), kind, length, held))
    return found


def _string(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    return table[at : end if end >= 0 else len(table)].decode("utf-8", "replace")


def _kernels(cubin: bytes) -> list[CubinKernel]:
    if cubin[:4] != b"\x7fELF" or _machine(cubin) != _EM_CUDA:
        return []
    sections = {section.name: section for section in _sections(cubin)}
    arch = _arch(cubin)
    entries = _symbols(sections)
    registers: dict[int, int] = {}
    stack: dict[int, int] = {}
    info = sections.get(".nv.info")
    for attribute, value in _attributes(info.data if info else b""):
        if len(value) >= 8 and attribute in (_REGCOUNT, _FRAME_SIZE, _MIN_STACK):
            symbol, figure = struct.unpack_from("<II", value)
            table = registers if attribute == _REGCOUNT else stack
            table[symbol] = max(figure, table.get(symbol, 0))
    found = []
    for index, (name, is_entry) in entries.items():
        text = sections.get(".text." + name)
        if not is_entry or text is None:
            continue
        threads = None
        own = sections.get(".nv.info." + name)
        for attribute, value in _attributes(own.data if own else b""):
            if attribute in (_MAX_THREADS, _REQUIRED_THREADS) and len(value) >= 12:
                x, y, z = struct.unpack_from("<3I", value)
                threads = x * max(y, 1) * max(z, 1)
        shared = sections.get(".nv.shared." + name)
        reserved = _RESERVED_SHARED if arch >= 90 else 0
        found.append(
            CubinKernel(
                symbol=name,
                arch=arch,
                registers=registers.get(index, 0),
                stack=stack.get(index, 0),
                shared=max(shared.size - reserved, 0) if shared else 0,
                max_threads=threads,
                code=text.data,
            )
        )
    return found


def _arch(cubin: bytes) -> int:
    """Reads the architecture from e_flags: the low byte in the ABI of CUDA 12 and earlier, the second byte in that of CUDA 13 (e_ident holds the ABI
    version)."""
    flags: int = struct.unpack_from("<I", cubin, 48)[0]
    return flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF


def _symbols(sections: dict[str, _Section]) -> dict[int, tuple[str, bool]]:
    table, names = sections.get(".symtab"), sections.get(".strtab")
    if table is None or names is None:
        return {}
    found = {}
    for index in range(len(table.data) // 24):
        name, kind, other = struct.unpack_from("<IBB", table.data, index * 24)
        if kind & 15 == 2:  # a function
            found[index] = (_string(names.data, name), bool(other & _ENTRY))
    return found


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (attribute, value). The value is in the header's last two bytes, or follows the header if the format is 4."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        if form == 4:
            yield attribute, data[at + 4 : at + 4 + size]
            at += 4 + size
        else:
            yield attribute, data[at + 2 : at + 4]
            at += 4


# Names

_NESTED = re.compile(r"_ZN?(?:[rVK]*)")


def plain_name(symbol: str) -> str:
    """Returns the qualified name of a mangled kernel without parameters: "_ZN2ns1kILi8EEEvPf" -> "ns::k"; any other name is returned unchanged."""
    start = _NESTED.match(symbol)
    if start is None:
        return symbol
    at, parts = start.end(), []
    nested = symbol.startswith("_ZN")
    while match := re.match(r"\d+", symbol[at : at + 6]):
        begin = at + match.end()
        at = begin + int(match[0])
        if at > len(symbol):
            return symbol
        part = symbol[begin:at]
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
        if not nested:
            break
        if symbol[at : at + 1] == "I":  # template arguments of a class or, at the end, of the kernel: only another name may follow
            break
    return "::".join(parts) if parts else symbol

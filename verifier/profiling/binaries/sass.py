"""Reads a kernel's machine code without a disassembler: counts instructions by kind, and determines the width of memory accesses.

From sm_70 on, an instruction takes 16 bytes. The low 9 bits identify the operation and, for memory operations, bits 73-75 give the width. The numbers
below were taken from `cuobjdump -sass` output for sm_80, sm_90a, sm_100a and sm_120. Counts refer to the static code, not to executed instructions,
so a loop body counts once.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

KINDS: dict[str, tuple[int, ...]] = {
    "ffma": (0x23, 0x49),  # FFMA and, from sm_100 on, its packed form for two values (FFMA2)
    "fp32": (0x20, 0x21, 0x4A, 0x4B, 0x08, 0x09, 0x0A, 0x0B, 0x102),  # FMUL FADD FSEL FMNMX FSET FSETP FCHK
    "fp16": (0x30, 0x31, 0x32, 0x40),  # HADD2 HFMA2 HMUL2 HMNMX2
    "fp64": (0x28, 0x29, 0x2A, 0x2B),  # DMUL DADD DSETP DFMA
    "tensor": (0x37, 0x3C, 0x3F, 0x1EA, 0x1F0, 0x1F1, 0x1F2, 0x1F3),  # IMMA HMMA DMMA UTC*MMA HGMMA IGMMA BGMMA QGMMA
    "integer": (0x0C, 0x10, 0x11, 0x12, 0x13, 0x16, 0x17, 0x19, 0x1C, 0x24, 0x25, 0x26, 0x27, 0x36, 0x46, 0x48, 0x100, 0x109),
    "uniform": (0x82, 0x86, 0x8C, 0x90, 0x91, 0x92, 0x99, 0x5A, 0xCA, 0x1C3),
    "move": (0x02, 0x07, 0x119),  # MOV SEL S2R
    "special": (0x108,),  # MUFU: exp2, log2, sin, reciprocal, square root
    "convert": (0x3E, 0x45, 0x104, 0x105, 0x106, 0x110, 0x112),
    "global_load": (0x180, 0x181),
    "global_store": (0x185, 0x186),
    "local_load": (0x183,),
    "local_store": (0x187,),
    "shared_load": (0x184, 0x3B),  # LDS LDSM
    "shared_store": (0x188, 0x44),  # STS STSM
    "async_copy": (0x1AE, 0x1B4, 0x1B5, 0x1BA),  # LDGSTS UTMALDG UTMASTG UBLKCP
    "constant_load": (0x182, 0xB9, 0x1AC),
    "atomic": (0x18C, 0x18D, 0x18E, 0x1A6, 0x1A8, 0x1A9),
    "barrier": (0x11D, 0x1A7, 0x1B2, 0x1C5, 0x1C7, 0x1AF, 0x11A),
    "fence": (0x192, 0x1C6),
    "shuffle": (0x06, 0x189, 0x1A1, 0x1C4, 0x2F),
    "branch": (0x141, 0x144, 0x145, 0x147, 0x148, 0x14D, 0x150),
}
_KIND = {opcode: kind for kind, opcodes in KINDS.items() for opcode in opcodes}
_NOP = 0x118
_WARPGROUP = (0x1F0, 0x1F1, 0x1F2, 0x1F3)  # wgmma, which reaches the peak of Hopper's tensor cores; mma.sync does not
_BYTES = (1, 1, 2, 2, 4, 8, 16, 16)  # by width field: U8 S8 U16 S16 32 64 128 U.128
_WIDE = ("global_load", "global_store", "local_load", "local_store")


@dataclass
class Mix:
    """The instruction mix: `counts` by kind, `bytes` moved per thread in one pass over the code, and the `widest` access of a thread in bytes."""

    instructions: int = 0
    warpgroup: int = 0  # the tensor-core instructions that belong to a warpgroup (wgmma)
    counts: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    widest: dict[str, int] = field(default_factory=dict)


def mix(code: bytes, arch: int) -> Mix:
    """Returns the mix of one kernel; empty before sm_70, where the encoding differs."""
    found = Mix()
    if arch < 70:
        return found
    for low, high in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]):
        opcode = low & 0x1FF
        if opcode == _NOP:
            continue
        found.instructions += 1
        found.warpgroup += opcode in _WARPGROUP
        # Before sm_120 this opcode was HFMA2; it is now an integer addition.
        kind = ("integer" if arch >= 120 else "fp16") if opcode == 0x35 else _KIND.get(opcode, "other")
        found.counts[kind] = found.counts.get(kind, 0) + 1
        if kind in _WIDE:
            width = _BYTES[high >> 9 & 7]
            found.bytes[kind] = found.bytes.get(kind, 0) + width
            found.widest[kind] = max(found.widest.get(kind, 0), width)
    return found

"""Programs in which some kernels do nothing: in machine code, in Triton's Python, and in CUDA text that is compiled at run time."""

from __future__ import annotations

import ast
import struct

import pytest

from verifier.build.artefacts import Artefacts
from verifier.integrity.variants import EXIT, emptied, without

NOP = struct.pack("<QQ", 0x7918, 0)


def cubin(*kernels: str, machine: int = 190, code: bytes = NOP * 3 + EXIT) -> bytes:
    """Returns a file with sections `.text.<kernel>`."""
    names = b"\0.shstrtab\0" + b"".join(f".text.{kernel}\0".encode() for kernel in kernels)
    body, rows, at = b"", [(0,) * 10], 64
    for kernel in kernels:
        rows.append((names.index(f".text.{kernel}\0".encode()), 1, 6, 0, at + len(body), len(code), 0, 0, 16, 0))
        body += code
    rows.append((1, 3, 0, 0, at + len(body), len(names), 0, 0, 1, 0))
    table = at + len(body) + len(names)
    header = b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 0, table, 0, 64, 0, 0, 64, len(rows), len(rows) - 1)
    return header + body + names + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows)


def library(*cubins: bytes) -> Artefacts:
    data = b"host code, 8 bytes aligned or not" + b"".join(cubins)
    return Artefacts([("own.so", len(data))], data, 0.0)


def test_the_first_instruction_of_every_instance_ends_the_kernel():
    first, second = cubin("_Z4mineIfEvPT_", "_Z5otherPf"), cubin("_Z4mineIdEvPT_")
    artefacts = library(first, second)
    data, done = emptied(artefacts, {"mine"})
    assert done == {"mine"} and len(data) == len(artefacts.data)
    changed = [at for at, (old, new) in enumerate(zip(artefacts.data, data, strict=True)) if old != new]
    entries = [artefacts.data.index(first) + 64, artefacts.data.index(second) + 64]
    assert all(data[at : at + 16] == EXIT for at in entries)
    assert all(any(at <= byte < at + 16 for at in entries) for byte in changed)


def test_what_is_no_code_of_a_known_gpu_is_left_alone():
    for other in (cubin("_Z4minePf", machine=62), cubin("_Z4minePf", code=NOP * 4), b"\x7fELF\x02\x01 and no more", cubin("_Z5otherPf")):
        artefacts = library(other)
        assert emptied(artefacts, {"mine"}) == (artefacts.data, set())


NOTHING = Artefacts([], b"", 0.0)
TRITON = """import triton


@triton.jit
def helper(x):
    return x


@triton.autotune(configs=[], key=[])
@triton.jit
def mine(y, n, BLOCK: tl.constexpr):
    '''Doubles.'''
    at = tl.program_id(0)
    tl.store(y + at,
             helper(2))


AFTER = 1
"""


DECORATED = "@triton.autotune(configs=[], key=[])\n@triton.jit\n"
WRAPPED = TRITON.replace(DECORATED, "") + "LAUNCH = triton.autotune(configs=[], key=[])(triton.jit(mine))\n"


@pytest.mark.parametrize("source", [TRITON, WRAPPED], ids=["decorated", "wrapped by a call"])
def test_a_kernel_of_triton_gets_an_empty_body(source):
    variant = without(["mine"], source, NOTHING)
    assert variant is not None
    tree = {node.name: node for node in ast.walk(ast.parse(variant.source)) if isinstance(node, ast.FunctionDef)}
    assert [type(node) for node in tree["mine"].body] == [ast.Pass] and isinstance(tree["helper"].body[0], ast.Return)
    assert variant.source.splitlines().index("AFTER = 1") == source.splitlines().index("AFTER = 1")


def test_text_that_is_compiled_at_run_time_returns_at_once():
    source = (
        'S = r"""\n__global__ void __launch_bounds__(256) mine(float* p, int (*f)(int)) {\n  p[0] = 1;\n}\n__global__ void mine2(float* p) { }\n"""\n'
    )
    variant = without(["mine"], source, NOTHING)
    assert variant is not None and "(*f)(int)) { return;\n" in variant.source and "mine2(float* p) { }" in variant.source


def test_ptx_returns_at_once():
    source = "S = '''.visible .entry mine(\n  .param .u64 p\n) .maxntid 256\n{ .reg .u64 a; }\n.visible .entry mine2() { ret; }'''"
    variant = without(["mine"], source, NOTHING)
    assert variant is not None and "{ ret; .reg .u64 a; }" in variant.source and "mine2() { ret; }" in variant.source


def test_what_is_found_nowhere_cannot_be_tried():
    assert without(["mine", "absent"], TRITON, NOTHING) is None
    assert without(["mine"], "S = '__global__ void mine(float* p);'", NOTHING) is None

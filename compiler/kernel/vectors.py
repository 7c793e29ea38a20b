"""Which accesses of a kernel take several neighbouring elements at once (16 bytes of one thread are one memory instruction), and types of indices."""

from __future__ import annotations

from compiler.graph.ir import FLOATS, HALVES, SIZES, Access, Kernel

COUNTS = {4: "four", 8: "eight"}


def vector_access(kernel: Kernel, access: Access, width: int) -> bool:
    """`width` neighbouring elements of the last axis lie side by side at an aligned address."""
    last = kernel.inner[-1]
    return access.strides[last] == 1 and access.offset % width == 0 and all(s % width == 0 for axis, s in enumerate(access.strides) if axis != last)


def vector_width(kernel: Kernel, most: int = 8) -> int:
    """How many elements a thread takes at once, where every dense floating access allows it: 8 if some are of 16 bits, 4, or 1."""
    if not kernel.inner:
        return 1
    last = kernel.inner[-1]
    floats = [op.access for op in kernel.ops.values() if op.kind == "load"] + [store.access for store in kernel.stores if store.level == "full"]
    floats = [access for access in floats if kernel.arguments[access.argument].dtype in FLOATS]
    dense = [access for access in floats if access.strides[last]]
    halves = any(kernel.arguments[access.argument].dtype in HALVES for access in dense)
    for width in (8, 4) if halves else (4,):
        aligned = all(vector_access(kernel, access, width) and kernel.arguments[access.argument].shift % width == 0 for access in dense)
        if width <= most and dense and aligned and kernel.sizes[last] % width == 0:
            return width
    return 1


def index_type(kernel: Kernel, axes: list[int], count: int) -> str:
    """Of variables that count to `count`, and of addresses computed of those of `axes`: 64 bits cost several instructions each."""
    furthest = max(abs(access.offset) + sum((kernel.sizes[n] - 1) * abs(access.strides[n]) for n in axes) for access in kernel.accesses())
    return "int" if max(count, furthest) < 2**31 else "long"


def copy_vector(dtype: str, width: int, to: str, source: str) -> list[str]:
    """Statements that copy `width` elements between two aligned addresses, 16 bytes at a time; a sum of terms comes in parentheses."""
    kind, count = _vectors(dtype, width)
    if count == 1:
        return [f"*({kind}*){to} = *(const {kind}*){source};"]
    return [f"(({kind}*){to})[{at}] = ((const {kind}*){source})[{at}];" for at in range(count)]


def store_vector(dtype: str, width: int, argument: str, place: str, source: str) -> list[str]:
    """Statements that copy an array of `width` elements to those from `place` on of an argument. A place of three terms or more is an index of whole
    vectors: where so many are added to a pointer one after the other, nvcc (13.0) stores element by element (in loops over axes of powers of two)."""
    if place.count(" + ") < 2:
        return copy_vector(dtype, width, f"({argument} + {place})", source)
    kind, count = _vectors(dtype, width)
    at = [f"({place}) / {width // count}{f' + {part}' if part else ''}" for part in range(count)]
    from_ = [f"((const {kind}*){source})[{part}]" if count > 1 else f"*(const {kind}*){source}" for part in range(count)]
    return [f"(({kind}*){argument})[{index}] = {value};" for index, value in zip(at, from_, strict=True)]


def _vectors(dtype: str, width: int) -> tuple[str, int]:
    """The type of a vector, and how many of them `width` elements are."""
    size = width * SIZES[dtype]
    kind = "float4" if dtype == "float32" else "int2" if size == 8 else "int4"
    return kind, max(1, size // 16)

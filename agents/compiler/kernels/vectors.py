"""Which accesses of a kernel take several neighbouring elements at once (16 bytes of one thread are one memory instruction), and types of indices."""

from __future__ import annotations

from agents.compiler.ir import FLOATS, HALVES, SIZES, Access, Kernel

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
    if dtype == "float32":
        if width == 4:
            return [f"*(float4*){to} = *(const float4*){source};"]
        return [f"((float4*){to})[{half}] = ((const float4*){source})[{half}];" for half in range(width // 4)]
    kind = "int4" if width * SIZES[dtype] == 16 else "int2"
    return [f"*({kind}*){to} = *(const {kind}*){source};"]

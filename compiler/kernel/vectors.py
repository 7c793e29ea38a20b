"""Chooses a kernel's index types and its vectorised accesses, which process several neighbouring elements at a time (one memory instruction moves 16
bytes per thread)."""

from __future__ import annotations

from compiler.graph.ir import FLOAT8, FLOATS, HALVES, SIZES, Access, Kernel, Store

LOADED = FLOATS | FLOAT8  # types with several elements per load instruction
COUNTS = {4: "four", 8: "eight"}


def vector_access(kernel: Kernel, access: Access, width: int) -> bool:
    """Returns whether `width` neighbouring elements of the last axis are contiguous and start at an aligned address."""
    last = kernel.inner[-1]
    return (
        not access.index
        and access.strides[last] == 1
        and access.offset % width == 0
        and all(s % width == 0 for axis, s in enumerate(access.strides) if axis != last)
    )


def gathered_vector(kernel: Kernel, access: Access, width: int) -> bool:
    """Performs the same check for elements at a computed position, which must be identical for all neighbours."""
    last, argument = kernel.inner[-1], kernel.arguments[access.argument]
    steps = [access.index_stride, access.offset, argument.shift, *(stride for axis, stride in enumerate(access.strides) if axis != last)]
    along = access.strides[last] == 1 and not _varies(kernel, access.index, last)
    return argument.dtype in LOADED and along and kernel.sizes[last] % width == 0 and all(step % width == 0 for step in steps)


def summed_vector(kernel: Kernel, store: Store, width: int) -> bool:
    """Returns whether the store adds neighbouring elements to neighbouring elements in memory."""
    return store.how == "sum" and kernel.arguments[store.access.argument].dtype == "float32" and gathered_vector(kernel, store.access, width)


def _varies(kernel: Kernel, name: str, axis: int) -> bool:
    op = kernel.ops[name]
    here = (op.kind == "coord" and op.attr == axis) or (bool(op.access.argument) and op.access.strides[axis] != 0)
    return here or any(_varies(kernel, arg, axis) for arg in op.args)


def vector_width(kernel: Kernel, most: int = 8) -> int:
    """Returns the number of elements that a thread processes at a time: 8 if some elements have 16 bits and 4 otherwise, or 1 if some dense
    floating-point access does not allow that."""
    if not kernel.inner:
        return 1
    last = kernel.inner[-1]
    floats = [op.access for op in kernel.ops.values() if op.kind == "load"] + [store.access for store in kernel.stores if store.level == "full"]
    floats = [access for access in floats if not access.index and kernel.arguments[access.argument].dtype in LOADED]
    dense = [access for access in floats if access.strides[last]]
    gathered = [op.access for op in kernel.ops.values() if op.kind == "gather" and op.level == "full"]
    summed = [store for store in kernel.stores if store.level == "full" and store.how]
    halves = any(kernel.arguments[access.argument].dtype in HALVES for access in [*dense, *gathered])
    for width in (8, 4) if halves else (4,):
        aligned = all(vector_access(kernel, access, width) and kernel.arguments[access.argument].shift % width == 0 for access in dense)
        worth = dense or any(gathered_vector(kernel, access, width) for access in gathered) or any(summed_vector(kernel, s, width) for s in summed)
        if width <= most and worth and aligned and kernel.sizes[last] % width == 0:
            return width
    return 1


def index_type(kernel: Kernel, axes: list[int], count: int) -> str:
    """Returns the type for variables that count up to `count` and for addresses computed from the variables of `axes`. Each 64-bit variable costs
    several instructions."""
    furthest = max(abs(access.offset) + sum((kernel.sizes[n] - 1) * abs(access.strides[n]) for n in axes) for access in kernel.accesses())
    return "int" if max(count, furthest) < 2**31 else "long"


def copy_vector(dtype: str, width: int, to: str, source: str) -> list[str]:
    """Returns statements that copy `width` elements between two aligned addresses, 16 bytes at a time. An address that is a sum must be in
    parentheses."""
    kind, count = _vectors(dtype, width)
    if count == 1:
        return [f"*({kind}*){to} = *(const {kind}*){source};"]
    return [f"(({kind}*){to})[{at}] = ((const {kind}*){source})[{at}];" for at in range(count)]


def store_vector(dtype: str, width: int, argument: str, place: str, source: str) -> list[str]:
    """Returns statements that copy an array of `width` elements to `place` in an argument. If `place` has three or more terms, it is written as an
    index of whole vectors, because nvcc 13.0 stores element by element when that many terms are added to a pointer one after another (in loops over
    axes with power-of-two sizes)."""
    if place.count(" + ") < 2:
        return copy_vector(dtype, width, f"({argument} + {place})", source)
    kind, count = _vectors(dtype, width)
    at = [f"({place}) / {width // count}{f' + {part}' if part else ''}" for part in range(count)]
    from_ = [f"((const {kind}*){source})[{part}]" if count > 1 else f"*(const {kind}*){source}" for part in range(count)]
    return [f"(({kind}*){argument})[{index}] = {value};" for index, value in zip(at, from_, strict=True)]


def _vectors(dtype: str, width: int) -> tuple[str, int]:
    """Returns the vector type and the number of vectors that hold `width` elements."""
    size = width * SIZES[dtype]
    kind = "float4" if dtype == "float32" else {4: "char4", 8: "int2"}.get(size, "int4")
    return kind, max(1, size // 16)

"""Which accesses of a kernel take several neighbouring elements at once: 16 bytes of one thread are one memory instruction."""

from __future__ import annotations

from agents.compiler.ir import Access, Kernel


def vector_access(kernel: Kernel, access: Access) -> bool:
    """Four neighbouring elements of the last axis lie side by side at an aligned address."""
    last = kernel.inner[-1]
    return access.strides[last] == 1 and access.offset % 4 == 0 and all(s % 4 == 0 for axis, s in enumerate(access.strides) if axis != last)


def vector_width(kernel: Kernel) -> int:
    """4 where every dense single-precision access allows it, else 1."""
    if not kernel.inner or kernel.sizes[kernel.inner[-1]] % 4:
        return 1
    last = kernel.inner[-1]
    floats = [op.access for op in kernel.ops.values() if op.kind == "load" and op.dtype == "float32"] + [
        store.access for store in kernel.stores if store.level == "full" and kernel.arguments[store.access.argument].dtype == "float32"
    ]
    dense = [access for access in floats if access.strides[last]]
    aligned = all(vector_access(kernel, access) and kernel.arguments[access.argument].shift % 4 == 0 for access in dense)
    return 4 if dense and aligned else 1

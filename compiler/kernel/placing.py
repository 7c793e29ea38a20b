"""Emits sums and maxima at computed positions as stores that combine each element or row of the kernel with one element of the result.

Out-of-range positions have no effect, because the kernel then combines a neutral value with the first element. (PyTorch raises an error.)
"""

from __future__ import annotations

import math

from compiler.graph.ir import Store, in_registers
from compiler.kernel.builder import Builder, Refused
from compiler.kernel.indexing import Place, access_at, aligned, picked

NEUTRAL = {"sum": 0.0, "amax": -math.inf, "amin": math.inf}


def store(builder: Builder, name: str) -> None:
    """Stores the values that the graph's operator `name` accumulates. Raises `Refused` if that is not possible."""
    network, found = builder.network, builder.placings[name]
    begins, dtype, at = network.base(found.begins), network.spec(name).dtype, builder.maps[name]
    if builder.computed_here(begins):
        raise Refused(f"what {name} begins as is computed in the same kernel")
    if found.how != "sum" and dtype != "float32":
        raise Refused(f"a maximum of {dtype} at computed places is left to PyTorch")
    value = builder.cast(builder.value(found.terms, aligned(builder, found.terms, at)), in_registers(dtype))
    if found.factor != 1:
        value = builder.op("mul", value, builder.const(found.factor, dtype), dtype=dtype)
    layout, whole, entries = network.layouts[name], network.spec(name).shape, tuple(() if axis < 0 else at[axis] for axis in found.along)
    places = []
    for pick in found.picks:
        over = tuple(at[axis] for axis in pick.over)
        places.append(Place(pick.axis, picked(builder, pick.index, aligned(builder, pick.index, over), whole[pick.axis], found.wraps), True))
    argument = builder.argument(name)
    argument.read = argument.written = True
    access, inside = access_at(builder, argument.name, layout, places, entries)
    neutral = builder.const(NEUTRAL[found.how], dtype)
    value = builder.op("where", inside, value, neutral, dtype=dtype, hint="term")
    op = builder.op("placed", value, access.index, dtype=dtype)
    builder.kernel.stores.append(Store(op, builder.stored_level(name, found.shape, at, op), access, found.how))

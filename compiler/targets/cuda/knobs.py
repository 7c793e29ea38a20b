"""CUDA kernel parameters that affect only the speed."""

from __future__ import annotations

from compiler.graph.ir import Kernel
from compiler.kernel.shape import Shape
from compiler.kernel.vectors import vector_width
from compiler.targets.cuda.body import Body
from compiler.targets.target import Offered


def knobs_of(kernel: Kernel, shape: Shape) -> Offered:
    blocks = tuple(n for n in (64, 128, 256, 512, 1024) if not kernel.reduces or shape.warp_rows or shape.style == "lanes" or n <= kernel.length)
    if shape.style == "stripes":
        return {"block": ((512, 1024), shape.threads), "groups": ((0, 8, 16, 32), 0)}  # with 8 or more groups, threads loop down their columns
    found: Offered = {"block": (blocks, shape.threads)}
    width = vector_width(kernel)
    if shape.style == "elements":
        found["work"] = ((1, 2, 4, 8), shape.work)
    if shape.style in ("elements", "rows", "split") and width > 1:
        found["vector"] = (tuple(sorted({1, 4, width})), min(shape.vector, width))
    if shape.style == "rows" and kernel.rows >= 2 and 64 <= kernel.length <= 8192:
        found["warp-row"] = ((1, 0), int(shape.warp_rows))
    if shape.style == "lanes" or (shape.style in ("rows", "split") and not Body(kernel, shape).resident):
        found["unroll"] = ((1, 2, 4, 8), shape.unroll)
    if shape.style == "split":
        found["row-blocks"] = ((8, 32, 128, 512, 2048), shape.chunks)
    if shape.style == "lanes" and kernel.length >= 16:
        found["groups"] = (tuple(n for n in (1, 2, 4, 8, 16, 32) if 2 * n <= kernel.length), shape.groups)
    if shape.cluster:
        found["cluster"] = (tuple(n for n in (1, 2, 4, 8) if n >= shape.cluster), shape.cluster)
    if shape.style == "scan":
        found["tile"] = ((1, 2, 4, 8), shape.tile)
    found["resident-blocks"] = (tuple(n for n in (1, 2, 4, 8) if n * shape.threads <= 2048), shape.resident)
    return found

"""Rewrites convolutions with few channels and large strides as convolutions with more channels and stride 1. This algebraic identity is exact for
finite inputs.

The same taps read image elements that are a multiple of the stride apart, so each remainder of the position modulo the stride becomes a channel. For
example, a window of 11 over 3 channels with stride 4 becomes a window of 3 over 48 channels (12 taps, the last of which is zero). Kernels read these
48 channels contiguously. With only 3 channels, they would have to compute the address of each element separately, and most of the memory that a load
fetches would belong to other elements. Strides of two are left unchanged, because a dedicated kernel handles them (families/direct_conv.py).
"""

from __future__ import annotations

from math import prod
from typing import Any

from compiler.graph.algebra import Specs
from compiler.graph.averaged import CONVOLUTIONS, OF_WEIGHTS, Convolution, Nodes, Window, convolve, read
from verifier.graph import Node

NOTE = "a convolution of few channels by long steps is computed as one of more channels by steps of one"
SIDE_BY_SIDE = 4  # number of channels that a kernel reads together; convolutions with a multiple of this number gain nothing
LONG = 3  # minimum stride
LEAST_FLOPS = 1 << 32  # for smaller convolutions, rearranging the image takes as long as it saves


def unshuffle(nodes: list[Node], specs: Specs, weights: set[str]) -> tuple[list[Node], list[str]]:
    """Returns the nodes, and a sentence for the plan if the identity was used. `specs` covers every value; `weights` are the parameters and buffers
    that stay unchanged."""
    found: list[Node] = []
    used = False
    for node in nodes:
        convolution = read(node, specs, weights) if node.op in CONVOLUTIONS else None
        if convolution is not None and worthwhile(convolution, specs):
            found += by_remainders(convolution, specs)
            used = True
        else:
            found.append(node)
    return found, [NOTE] if used else []


def worthwhile(found: Convolution, specs: Specs) -> bool:
    images, channels = specs[found.image["ref"]].shape[:2]
    flops = 2 * images * channels * found.outputs * prod(axis.out * axis.kernel for axis in found.axes)
    plain = not found.transposed and all(axis.dilation == 1 and axis.extra == 0 for axis in found.axes)
    overlap = all(axis.kernel > axis.stride or axis.stride == 1 for axis in found.axes)
    return plain and overlap and channels % SIDE_BY_SIDE != 0 and max(axis.stride for axis in found.axes) >= LONG and flops >= LEAST_FLOPS


def by_remainders(found: Convolution, specs: Specs) -> list[Node]:
    images, channels = specs[found.image["ref"]].shape[:2]
    nodes = Nodes(found.node)
    steps = [axis.stride for axis in found.axes]
    taps = [-(-axis.kernel // axis.stride) for axis in found.axes]
    sizes = [axis.out - 1 + count for axis, count in zip(found.axes, taps, strict=True)]  # sizes of the new image
    whole = [size * step for size, step in zip(sizes, steps, strict=True)]
    image: Any = found.image
    ends = [(axis.padding, long - axis.padding - axis.size) for axis, long in zip(found.axes, whole, strict=True)]
    if any(end != (0, 0) for end in ends):  # crops elements that no window reads
        around = [amount for end in reversed(ends) for amount in end]
        image = nodes.make("padded", "aten.constant_pad_nd.default", [image, around, 0.0], (images, channels, *whole))
    remainders, order = split(steps, sizes)
    image = nodes.make("split", "aten.view.default", [image, [images, channels, *remainders]], (images, channels, *remainders))
    turned = (images, channels, *steps, *sizes)
    image = nodes.make("turned", "aten.permute.default", [image, order], turned)
    image = nodes.make("gathered", "aten.clone.default", [image], turned, memory_format="torch.contiguous_format")
    deep = channels * prod(steps)
    image = nodes.make("remainders", "aten.view.default", [image, [images, deep, *sizes]], (images, deep, *sizes))
    missing = [count * step - axis.kernel for count, step, axis in zip(taps, steps, found.axes, strict=True)]
    text = f"torch.nn.functional.pad({{0}}, ({', '.join(f'0, {amount}' for amount in reversed(missing))}))"
    remainders, order = split(steps, taps)
    text += f".reshape({', '.join(map(str, (found.outputs, channels, *remainders)))}).permute({', '.join(map(str, order))})"
    size = (found.outputs, deep, *taps)
    weight = nodes.make("taps", OF_WEIGHTS, [{"ref": found.weight}], size, code=f"{text}.reshape({', '.join(map(str, size))}).contiguous()")
    axes = [Window(size, axis.out, count, 1, 0, 1) for size, axis, count in zip(sizes, found.axes, taps, strict=True)]
    op, args = convolve(False, axes, image, weight, found.bias)
    return [*nodes.made, found.node.model_copy(update={"op": op, "args": args, "kwargs": {}})]


def split(steps: list[int], sizes: list[int]) -> tuple[list[int], list[int]]:
    """Splits all axes except the first two by their steps. Returns the new shape and the permutation that moves the remainders ahead of the
    positions."""
    rank = len(steps)
    cut = [amount for size, step in zip(sizes, steps, strict=True) for amount in (size, step)]
    return cut, [0, 1, *(3 + 2 * at for at in range(rank)), *(2 + 2 * at for at in range(rank))]

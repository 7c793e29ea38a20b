"""Tested device functions for instructions that a model cannot try out before it sends a program."""

from __future__ import annotations

from collections.abc import Iterable

from agents.roles.prompts import fenced
from agents.strategies import Strategy
from compiler import DeviceFigures
from compiler.families.product import warpgroup

SPLIT = "split-product"


def fragments_text(strategies: Iterable[Strategy], figures: DeviceFigures, program: str) -> str:
    """Returns the compiler's own device functions for wgmma products, with the layout of their operands, if a strategy calls for such products, the
    device supports the instructions, and the `program` does not contain the functions yet. Otherwise, returns ""."""
    wanted = any(strategy.name == SPLIT for strategy in strategies)
    if not wanted or figures.capability != warpgroup.ARCHITECTURE or "wgmma" in program:
        return ""
    flags = list(warpgroup.FLAGS)
    return (
        f"Device functions of the compiler for TF32 products by wgmma, tested on this architecture (build them with `{flags}`). For lane `l` of warp "
        "`w` of the warpgroup, with `g = l / 4` and `t = l % 4`, `a[r]` is element (16 w + g + r % 2 * 8, t + r / 2 * 4) of a 64 x 8 piece of A, and "
        "`sum[i]` is element (16 w + g + i / 2 % 2 * 8, i / 4 * 8 + t * 2 + i % 2) of the product. Element (k, n) of B lies at float "
        "(k / 4 * N + n) * 4 + k % 4 of shared memory. Call shared_memory_for_tensor_cores after writing B and before the barrier, then group_begin, "
        "the products, group_commit, group_wait. registers_give and registers_take have counts that are multiples of 8, from 24 to 256. "
        f"{half_products()}\n\n{fenced(warpgroup.PRIMITIVES, 'cuda')}"
    )


def half_products() -> str:
    """Explains how fp16 products with wgmma differ from TF32 products if both operands are in shared memory, as `half_cuda` arranges them."""
    return (
        "For products of fp16, which take half the time, write the like with `wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16` and, after the "
        "sums, `%64, %65, add, 1, 1, 0, 0`: A and B are then 64-bit descriptors (`l`) of shared memory. Element (line, k) of a stage of 64 of K "
        "lies at byte `line * 128 + ((k / 8 ^ line % 8) << 4) + k % 8 * 2` from a multiple of 1,024; its descriptor is "
        "`(address & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62`, the next 16 of K are 32 bytes on, and sums lie as above."
    )

"""Tested device functions for instructions that a model cannot try out before it sends a program."""

from __future__ import annotations

from collections.abc import Iterable

from agents.roles.prompts import fenced
from agents.strategies import Strategy
from compiler import DeviceFigures
from compiler.families.product import warpgroup

SPLIT = "split-product"


def fragments_text(strategies: Iterable[Strategy], figures: DeviceFigures, program: str) -> str:
    """Returns the compiler's own device functions for products by wgmma, with the layout of their operands, if a strategy asks for such products, the
    device has the instructions and the `program` does not contain them yet. Otherwise, returns ""."""
    wanted = any(strategy.name == SPLIT for strategy in strategies)
    if not wanted or figures.capability != warpgroup.ARCHITECTURE or "wgmma" in program:
        return ""
    flags = list(warpgroup.FLAGS)
    return (
        f"Device functions of the compiler for TF32 products by wgmma, tested on this architecture (build them with `{flags}`). For lane `l` of warp "
        "`w` of the warpgroup, with `g = l / 4` and `t = l % 4`, `a[r]` is element (16 w + g + r % 2 * 8, t + r / 2 * 4) of a 64 x 8 piece of A, and "
        "`sum[i]` is element (16 w + g + i / 2 % 2 * 8, i / 4 * 8 + t * 2 + i % 2) of the product. Element (k, n) of B lies at float "
        "(k / 4 * N + n) * 4 + k % 4 of shared memory. Call shared_memory_for_tensor_cores after writing B and before the barrier, then group_begin, "
        f"the products, group_commit, group_wait:\n\n{fenced(warpgroup.PRIMITIVES, 'cuda')}"
    )

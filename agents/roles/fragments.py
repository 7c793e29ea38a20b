"""Tested device functions for instructions that a model cannot try out before it sends a program."""

from __future__ import annotations

from collections.abc import Iterable

from agents.roles.prompts import fenced
from agents.strategies import Strategy
from compiler import DeviceFigures
from compiler.families.product import warpgroup

SPLIT = "split-product"
TF32, AFTER = "// sum = a * b", "// What the registers and the shared memory of products hold"  # where the compiler's text about each begins
HALF = """// The same for fp16 over a depth of 16, with both operands in shared memory, by their descriptors.
__device__ __forceinline__ unsigned long long half_place(const void* at) {
    return ((unsigned)__cvta_generic_to_shared(at) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ __forceinline__ void multiply_half(float (&sum)[64], unsigned long long a, unsigned long long b, bool add) {
    GROUP_ASM(
        "{ .reg .pred add; setp.ne.b32 add, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " SUM_PLACES
        "%64, %65, add, 1, 1, 0, 0; }"
        : SUMS
        : "l"(a), "l"(b), "r"((int)add));
}
"""


def fragments_text(strategies: Iterable[Strategy], figures: DeviceFigures, program: str) -> str:
    """Returns the compiler's own device functions for wgmma products, with the layout of their operands, if a strategy calls for such products, the
    device supports the instructions, and the `program` does not contain the functions yet. Otherwise, returns ""."""
    wanted = any(strategy.name == SPLIT for strategy in strategies)
    if not wanted or figures.capability != warpgroup.ARCHITECTURE or "wgmma" in program:
        return ""
    flags = list(warpgroup.FLAGS)
    return (
        f"Device functions of the compiler for products by wgmma (build them with `{flags}`). Those for TF32 are tested on this architecture; "
        "`multiply_half` has the instruction and the layout of its programs for 16 bits, which are. For lane `l` of warp `w` of the warpgroup, with "
        "`g = l / 4` and `t = l % 4`, `sum[i]` is element (16 w + g + i / 2 % 2 * 8, i / 4 * 8 + t * 2 + i % 2) of the product. TF32: `a[r]` is "
        "element (16 w + g + r % 2 * 8, t + r / 2 * 4) of a 64 x 8 piece of A, and element (k, n) of B lies at float (k / 4 * N + n) * 4 + k % 4 of "
        f"shared memory. {half_products()} Call shared_memory_for_tensor_cores after writing operands, behind the wait for asynchronous copies, and "
        "before the barrier, then group_begin, the products, group_commit, group_wait. registers_give and registers_take have counts that are "
        f"multiples of 8, from 24 to 256.\n\n{fenced(shown_primitives(), 'cuda')}"
    )


def shown_primitives() -> str:
    """Returns the compiler's device functions, and one for fp16 that shares the list of sums with that for TF32."""
    places, listed = warpgroup.sums_of(warpgroup.COLUMNS)
    lists = f"#define SUM_PLACES {places}\n#define SUMS {listed}\n".replace("\n ", " \\\n ")
    short = warpgroup.PRIMITIVES.replace(places, "SUM_PLACES").replace(listed, "SUMS")
    return short.replace(TF32, f"{lists}{TF32}").replace(AFTER, f"{HALF}{AFTER}")


def products_note(names: Iterable[str], figures: DeviceFigures) -> str:
    """Returns what a plan or a diagnosis must know of products of full precision on tensor cores: what three of fp16 need, and the code that the
    Coder is given. Returns "" if the strategy is not among the `names` or the device has no wgmma."""
    if SPLIT not in names or figures.capability != warpgroup.ARCHITECTURE:
        return ""
    # the error is that of candidate 3 for 06_experts_in_a_loop in bench/results/agents-strong.tar.gz, on an H100
    return (
        f"For `{SPLIT}` by three of fp16, each row of an operand (or its part in a block of K, in an epilogue that holds no whole row) is scaled by "
        "an exact power of two and cut into two halves, which take as many bytes as fp32. A mixture of experts with rows scaled so, whose "
        "accumulator was emptied after every 32 elements of K (K of 1,024 and 2,816), erred by 15 % of its bound; longer sums were not "
        "measured. The Coder gets device functions and layouts for wgmma of 64 by 128 (TF32 with A in registers, fp16 with both operands in "
        "shared memory), and none for mma.sync, clusters, bulk copies (TMA) or mbarriers."
    )


def half_products() -> str:
    """Says where operands of fp16 lie, as `half_cuda` lays them out."""
    return (
        "fp16: element (line, k) of a stage of 64 of K of A or B lies at byte `line * 128 + ((k / 8 ^ line % 8) << 4) + k % 8 * 2` from a multiple "
        "of 1,024, and the next 16 of K are 32 bytes on."
    )

"""Faults of kernels limited by arithmetic units: determines which kind of instruction is excessive.

The number of instructions that a task needs is estimated from its graph: about 4 per element for a pointwise operator, 25 to 40 for a transcendental
function (fp32, full accuracy, as compiled by nvcc for sm_90), and 8 to load, store and index an element of the largest tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.profiling.diagnosing.cause import Cause
from verifier.profiling.nsight import counters

if TYPE_CHECKING:
    from verifier.profiling.diagnosing.kernel_faults import View

BUSY = 0.5  # share of issue slots, or of a pipe, above which arithmetic limits the kernel
NOT_MEMORY = 0.6
FP64_BUSY = 0.15
ARITHMETIC_PIPES = ("alu", "fma", "fp64", "xu")  # excludes loads and stores
NEEDED_OPERATOR, NEEDED_SPECIAL, NEEDED_ELEMENT = 4, 35, 8  # instructions
EXCESS = 2.0
INTEGER = 0.45  # share of the instructions
MATMUL_FLOPS = 1e8


def double_precision(view: View) -> Cause | None:
    """Detects a busy fp64 pipe. Double-precision functions also cost issue slots and conversions, which add about half as much again and disappear
    with them."""
    fp64 = max(view.get(counters.FP64_SHARE), view.get(counters.PIPE["fp64"])) / 100
    if fp64 < FP64_BUSY:
        return None
    says = "Arithmetic runs in double precision."
    share = min(_above_memory(view), 1.5 * fp64)
    return view.cause("fp64-arithmetic", share, says, ("fp64 pipe", 100 * fp64, "%", "of its peak; half the rate of fp32 at best"))


def arithmetic_fault(view: View, precision: str) -> Cause | None:
    pipe = max(view.get(counters.PIPE[name]) for name in ARITHMETIC_PIPES) / 100
    if max(view.issue_share, pipe) < BUSY or view.dram_share >= NOT_MEMORY:
        return None
    flops = view.facts.flops or 0
    tensor = view.get(counters.TENSOR_SHARE) / 100
    if precision != "fp32-strict" and flops >= MATMUL_FLOPS and tensor < 0.01:
        says = f"A matrix product under {precision} runs without tensor cores."
        return view.cause(
            "no-tensor-cores",
            0.8,
            says,
            ("tensor pipe", 100 * tensor, "%", "of its peak"),
            ("fma pipe", view.get(counters.PIPE["fma"]), "%", "of its peak"),
            ("operations a call", flops / 1e9, "GFLOP", "of matrix products"),
        )
    return None if flops >= MATMUL_FLOPS else _excess(view)


def _excess(view: View) -> Cause | None:
    """Detects more instructions than the task's operators need."""
    facts = view.facts
    if facts.arithmetic is None or not facts.largest:
        return None
    executed = view.get(counters.INSTRUCTIONS) * view.get(counters.ACTIVE_THREADS, 32.0) * view.launches
    needed = NEEDED_OPERATOR * facts.arithmetic + NEEDED_SPECIAL * facts.special + NEEDED_ELEMENT * facts.largest
    if not executed or executed / needed < EXCESS:
        return None
    integer = view.get(counters.THREAD_OPS["integer"]) * view.launches / executed
    figures = (
        ("instructions an element", executed / facts.largest, "", f"about {needed / facts.largest:.0f} are needed"),
        ("integer instructions", 100 * integer, "%", "of all"),
        ("issue slots used", 100 * view.issue_share, "%", "of all"),
    )
    share = min(_above_memory(view), 1 - needed / executed)
    if integer >= INTEGER:
        return view.cause("integer-overhead", share, "Most instructions compute indices: divisions and remainders of integers.", *figures)
    if facts.special_small and facts.special_small * 2 >= facts.special:
        return view.cause("redundant-arithmetic", share, "Values that depend only on a row or a column are computed for every element.", *figures)
    return view.cause("slow-functions", share, "The kernel computes functions that the task does not need.", *figures)


def _above_memory(view: View) -> float:
    """Returns the share of the kernel's time that exceeds the time that its memory traffic takes."""
    return 1 - view.dram_share / 0.9

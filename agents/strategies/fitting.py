"""Structural vetoes: reasons why a strategy does not fit a task's shapes or a program's kernels, worded like the strategy's own `Not for`.

Unknown facts never veto.
"""

from __future__ import annotations

from collections.abc import Callable

from agents.strategies.strategy import Facts
from verifier.profiling.diagnosing.structure import ReducedRows

TILE = 128  # side length of the tiles used to judge whether a product fills the device
DEEP = 4  # minimum ratio of K to the smaller of M and N at which splitting K pays off
LONG_ROW = 4096  # row length, in elements, below which a second reduction costs more than it saves
WARP_ROW = 2048  # longest row, in elements, that fits into the registers of a warp
SORTED_ROW = 2048  # longest row, in elements, that a sorting network handles
SELECTING = 0.1  # minimum share of the device's time spent in a library's selection at which writing a kernel for it is worthwhile
MATRIX_BYTES = 1 << 20  # size below which the product of a matrix and a vector takes less time than a launch
SPLIT_FLOPS = 10**9
FLOAT = 4  # bytes
STEPPED = 4  # ratio of a recurrence's steps to kernels at or above which the steps must run inside the kernels
MOSTLY_OWN = 0.5

ROW, ROW_ELEMENTS = 32, 1 << 16  # minimum elements of a row, and of all rows together, for a reduction to be worth optimising
NORMALISING = ("norm", "softmax", "logsumexp", "var", "std")  # reductions that read a row more than once
LAUNCH_US, WORTH = 5.0, 0.03  # maximum cost of a launch, and share of a call below which a gain cannot be distinguished from noise
SMALL_GAP = 0.01  # share of a call

Veto = Callable[[Facts], str | None]


def every(*vetoes: Veto) -> Veto:
    """Combines vetoes. The first objection found is returned."""
    return lambda facts: next((why for veto in vetoes if (why := veto(facts)) is not None), None)


def other_kernels(facts: Facts) -> str | None:
    """Vetoes handing a group back if the program has only one kernel, because only eager PyTorch would remain."""
    return "the program has one kernel, without which it is eager PyTorch" if facts.kernels == facts.own_kernels == 1 else None


def deep_products(facts: Facts) -> str | None:
    """Vetoes split-k unless at least one product has few tiles and a large K."""
    products = facts.structure.products if facts.structure is not None else None
    if products is None or not facts.units:
        return None
    fits = any(p.tiles(TILE) < facts.units and p.k >= DEEP * min(p.m, p.n) for p in products)
    return None if fits else "no product has both fewer tiles than the device has SMs and a K of four times M or N"


def long_rows(facts: Facts) -> str | None:
    """Vetoes parallel-split unless at least one reduction has few but long rows."""
    rows = facts.structure.rows if facts.structure is not None else None
    if rows is None or not facts.units:
        return None
    return (
        None if any(row.length >= LONG_ROW and row.rows < 2 * facts.units for row in rows) else "no reduction has few rows of 4,096 elements or more"
    )


def groups(facts: Facts) -> str | None:
    """Vetoes a grouped product if there are no groups."""
    return (
        "no products of different or data-dependent sizes are independent of each other" if facts.structure and not facts.structure.groups else None
    )


def rows_exceed_fast_memory(facts: Facts) -> str | None:
    """Vetoes an online softmax whose rows are read only once anyway."""
    rows = facts.structure.rows if facts.structure is not None else None
    if rows is None or not facts.unit_cache_bytes:
        return None
    fits = any(row.length * FLOAT > facts.unit_cache_bytes for row in rows if "softmax" in row.kind or row.kind == "logsumexp")
    return None if fits else "every row fits in shared memory, so that it is read only once"


def rows_fit_fast_memory(facts: Facts) -> str | None:
    """Vetoes a row cache if no row is read more than once, or if none fits."""
    if facts.reductions is False:
        return "nothing reduces over rows"
    rows = _worth(facts)
    if rows is None or not facts.unit_cache_bytes:
        return None
    several = [row for row in rows if any(kind in row.kind for kind in NORMALISING)]
    return None if any(row.length * FLOAT <= facts.unit_cache_bytes for row in several) else "no row that is read more than once fits in fast memory"


def short_rows(facts: Facts) -> str | None:
    """Vetoes one warp per row if the rows are long or too few to matter."""
    rows = _worth(facts)
    return (
        "no reduction of some size has rows that fit in the registers of a warp"
        if rows is not None and not any(r.length <= WARP_ROW for r in rows)
        else None
    )


def large_reductions(facts: Facts) -> str | None:
    rows = _worth(facts)
    return "no reduction is large enough to matter" if rows is not None and not rows else None


def _worth(facts: Facts) -> list[ReducedRows] | None:
    rows = facts.structure.rows if facts.structure is not None else None
    return [row for row in rows if row.length >= ROW and row.rows * row.length >= ROW_ELEMENTS] if rows is not None else None


def sorted_rows(facts: Facts) -> str | None:
    """Vetoes sorting long rows. A selection from long rows is not a sort, and a kernel for it is worthwhile if the library's selection takes much of
    the time."""
    if facts.selection_share is not None and facts.selection_share >= SELECTING:
        return None
    lengths = facts.structure.sorted_lengths if facts.structure is not None else None
    return "its rows have more than 2048 elements" if lengths and min(lengths) > SORTED_ROW else None


def vectors(facts: Facts) -> str | None:
    """Vetoes a matrix-vector kernel if no operand is a single row or column, or if the matrix is small."""
    products = facts.structure.products if facts.structure is not None else None
    if products is None:
        return None
    fits = any(min(p.m, p.n) == 1 and not p.convolution and p.batch * p.k * max(p.m, p.n) * FLOAT >= MATRIX_BYTES for p in products)
    return None if fits else "no operand is a single row or column beside a matrix of 1 MB or more"


def operands_exceed_cache(facts: Facts) -> str | None:
    products = facts.structure.products if facts.structure is not None else None
    if products is None or not facts.cache_bytes:
        return None
    return None if any(p.operand_elements * FLOAT > facts.cache_bytes for p in products) else "the operands of every product fit in L2"


def scores_exceed_cache(facts: Facts) -> str | None:
    elements = facts.structure.score_elements if facts.structure is not None else None
    if elements is None or not facts.cache_bytes:
        return None
    return "the scores stay in cache" if elements * FLOAT < facts.cache_bytes / 2 else None


def outputs_exceed_cache(facts: Facts) -> str | None:
    if facts.largest_bytes is None or not facts.cache_bytes:
        return None
    return "no tensor is larger than the last-level cache" if facts.largest_bytes <= facts.cache_bytes else None


def large_products(facts: Facts) -> str | None:
    """Vetoes strategies that pay off only for large products. A product in a recurrence counts for all steps, because the part that does not depend
    on the state can be moved out of the loop as one product."""
    products, steps = facts.structure.products if facts.structure is not None else None, max(facts.dependent_steps or 1, 1)
    return "no product has 1 GFLOP or more" if products is not None and not any(p.flops * steps >= SPLIT_FLOPS for p in products) else None


def depthwise(facts: Facts) -> str | None:
    return "no convolution works on each channel alone" if facts.structure is not None and not facts.structure.depthwise else None


def chains(facts: Facts) -> str | None:
    return "no pointwise operator follows another one" if facts.structure is not None and not facts.structure.chains else None


def foldable(facts: Facts) -> str | None:
    return "nothing is computed from parameters alone" if facts.structure is not None and not facts.structure.foldable else None


def functions(facts: Facts) -> str | None:
    return "the task has no transcendental functions" if facts.functions is False else None


def recurs(facts: Facts) -> str | None:
    """Vetoes a persistent recurrence if there is no recurrence, or if each of the program's own kernels already runs many steps."""
    if facts.dependent_steps is None:
        return None
    if not facts.dependent_steps:
        return "no step of the task needs the one before"
    own = facts.own_share is not None and facts.own_share >= MOSTLY_OWN
    if own and facts.kernels is not None and facts.kernels * STEPPED <= facts.dependent_steps:
        return "the program's own kernels already run many steps each"
    return None


def library_computes_products(facts: Facts) -> str | None:
    return "no product is left to the library" if facts.library_products is False else None


def several_kernels(facts: Facts) -> str | None:
    return "the whole call is one kernel already" if facts.kernels is not None and facts.kernels < 2 else None


def own_kernels_in_a_row(facts: Facts) -> str | None:
    """Vetoes overlapping launches if fewer than two of the program's own kernels run in a call, or if launches take too small a share of the call."""
    if facts.own_kernels is not None and facts.program_us and facts.own_kernels * LAUNCH_US < WORTH * facts.program_us:
        return "launches take too small a share of the call"
    return "fewer than two own kernels run in a call" if facts.own_kernels is not None and facts.own_kernels < 2 else None


def short_kernels(facts: Facts) -> str | None:
    return "fewer than two kernels are shorter than 20 us" if facts.short_kernels is not None and facts.short_kernels < 2 else None


def gaps_between(facts: Facts) -> str | None:
    """Vetoes a CUDA graph if there are no gaps between launches. A graph does not shorten the host work before the first launch."""
    return "the device does not wait between launches" if facts.gap_share is not None and facts.gap_share < SMALL_GAP else None


def plain_products(facts: Facts) -> str | None:
    return "the slowest kernel computes its products on tensor cores, whose tiles reuse their operands" if facts.on_tensor_cores else None


def quiet_memory(facts: Facts) -> str | None:
    return "no long kernel uses much of DRAM's bandwidth" if facts.quiet_memory else None


def tensor_pipeline(facts: Facts) -> str | None:
    return "the slowest kernel has no pipeline of tensor cores" if facts.on_tensor_cores is False else None


def several_waves(facts: Facts) -> str | None:
    return "the slowest kernel runs in a single wave" if facts.slowest_waves is not None and facts.slowest_waves <= 1 else None


def enough_blocks(facts: Facts) -> str | None:
    few = facts.slowest_blocks is not None and facts.units and facts.slowest_blocks < 2 * facts.units
    return "the slowest kernel has fewer than two blocks per SM" if few else None


def streams(facts: Facts) -> str | None:
    return "no long kernel uses 30 to 85 % of DRAM's bandwidth" if facts.streams is False else None


def host_waits(facts: Facts) -> str | None:
    return "the host waits for the device within a call, which no capture allows" if facts.waits is not None and facts.waits >= 1 else None

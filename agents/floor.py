"""The floor: the shortest time that any program could take for a piece of work on a device. Plans, diagnoses, prompts and pages all use this model.

The floor is the longer of two times: the time to move the minimum amount of data at the bandwidth of a plain stream, and the time to execute the
operations in the fastest arithmetic that the precision policy allows on the device. Under fp32-strict, on devices with TF32 tensor cores, that
arithmetic splits each product into three.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.figures import Arithmetic, DeviceFigures, own_arithmetic
from compiler.graph.network import Network, size_bytes
from compiler.graph.touched import read_within
from compiler.graph.values import refs
from compiler.planning.cost import duration

if TYPE_CHECKING:
    from agents.roles.compiled import Compiled
    from compiler import Group
    from verifier.graph import Capture

SMALL = 0.2  # if arithmetic takes less than this share of the time to move the data, it is not mentioned
_RUN = re.compile(r"\b(g\d+)\s*(?:-|–|to)\s*(g\d+)\b(?:\s+every\s+([1-9]\d*))?")
LOOPS = ("pool", "scan", "order")  # families of kernels without products
PARTS = 3  # products of 16 bits that make up one of fp32
SPLIT = "three of fp16 after exact scaling, which keep as many bits and which the policy allows as well, within the error bound"
FEWEST_ROWS, WORTH_PADDING = 8, 1.1  # the narrowest tile of a product on tensor cores, and the least ratio of padded rows to rows that is mentioned
WORTH_ELEMENTS = 0.1  # minimum ratio of the time for elements of other operators to the floor at which it is mentioned
STEP_US = 1.0  # time of one exchange of a recurrent state between blocks, through the L2 cache
UNITS: dict[Arithmetic, str] = {
    "fp32": "fp32 units", "3xtf32": "tensor cores, each fp32 product as three of TF32", "tf32": "tensor cores in TF32",
    "half": "tensor cores with operands of 16 bits",
}  # fmt: skip


@dataclass(frozen=True)
class Floor:
    """The floor and its parts. All times are in milliseconds; a time is 0 if there is nothing to do."""

    nbytes: int
    flops: int
    memory_ms: float
    fp32_ms: float  # compute time on the fp32 units
    compute_ms: float  # compute time in the fastest arithmetic that the policy allows
    arithmetic: Arithmetic  # the arithmetic behind `compute_ms`
    split_ms: float = 0.0  # compute time as three products of 16 bits; 0 if that is not faster, or not allowed

    @property
    def ms(self) -> float:
        return max(self.memory_ms, self.compute_ms)

    @property
    def bound(self) -> str:
        return "memory" if self.memory_ms >= self.compute_ms else "compute"

    def says(self, brief: bool = False) -> str:
        """Describes the floor and its parts. `brief` is for lists whose heading names the arithmetic. Arithmetic that takes little time compared with
        moving the data is left out."""
        parts = [f"{size(self.nbytes)} move in {duration(self.memory_ms)}"] if self.nbytes else []
        if self.flops and not (brief and self.compute_ms < SMALL * self.memory_ms):
            rates = [f"{duration(self.fp32_ms)} on fp32 units"] if self.arithmetic in ("fp32", "3xtf32") else []
            cores = UNITS[self.arithmetic].partition(",")[0] if brief else UNITS[self.arithmetic]
            rates += [f"{duration(self.compute_ms)} on {cores}"] if self.arithmetic != "fp32" else []
            if self.split_ms and self.bound == "compute" and not brief:
                rates.append(f"{duration(self.split_ms)} as {SPLIT}{'; then the bytes take longer' if self.split_ms < self.memory_ms else ''}")
            parts.append(f"{flops_text(self.flops)} take {', '.join(rates)}")
        return f"{duration(self.ms)} at least ({'; '.join(parts) or 'nothing to move or to compute is known'})"


def floor_of(nbytes: int | None, flops: int | None, figures: DeviceFigures, precision: str, *, products: bool = True) -> Floor:
    """Returns the floor. `products`: whether `flops` belong to products, which may run on tensor cores, or to operators that run only on the fp32
    units."""
    arithmetic = fastest(figures, precision) if products else "fp32"
    count = flops or 0
    computing = figures.compute_ms(count, arithmetic)
    split = PARTS * figures.compute_ms(count, "half") if arithmetic == "3xtf32" else 0.0
    return Floor(
        nbytes or 0,
        count,
        figures.memory_ms(nbytes or 0),
        figures.compute_ms(count),
        computing,
        arithmetic,
        split if split < computing else 0.0,
    )


def fastest(figures: DeviceFigures, precision: str) -> Arithmetic:
    """Returns the fastest arithmetic that the policy allows on the device."""
    own = own_arithmetic(precision)
    return own if figures.gflops(own) > figures.fp32_gflops else "fp32"


def faster(figures: DeviceFigures, precision: str) -> str:
    """States how much less time products take in another arithmetic that the policy allows but floors do not assume; "" if there is none."""
    arithmetic = fastest(figures, precision)
    if arithmetic != "3xtf32" or figures.half_gflops / PARTS <= figures.gflops(arithmetic):
        return ""
    return f" (the policy also allows three of fp16, in {PARTS * figures.gflops(arithmetic) / figures.half_gflops:.2f} of that time)"


def floor_of_task(compiled: Compiled, capture: Capture) -> Floor:
    """Returns the floor of the whole task, fused into one pass that reads inputs and weights once and writes outputs once. If the capture counts a
    layer (such as a recurrent layer) as one operator, its operations are known only at group level."""
    flops = max(capture.flops or 0, sum(group.flops for group in compiled.plan.groups if multiplies(group)))
    return floor_of(capture.bytes_min, flops, compiled.figures, compiled.plan.precision)


def operations(compiled: Compiled, capture: Capture) -> int | None:
    """Returns the number of operations in the floor of the whole task, or None if it is unknown."""
    return floor_of_task(compiled, capture).flops or capture.flops


def steps_text(dependent_steps: int, exchanges: int = 1, figures: DeviceFigures | None = None, rows: int = 0, waits_known: bool = False) -> str:
    """Says what the floor leaves out. `exchanges` is the number of products and reductions in a step that depend on one another, `rows` that of the
    rows of its products (0: unknown). If the time that a program waits in its steps is known, nothing is estimated for them."""
    if not dependent_steps:
        return (
            "It counts only bytes and products, in this arithmetic and as the task's operators stand (a cheaper split or less work goes below it): "
            "no latency, no launches, no transcendental functions."
        )
    several = f"each has up to {exchanges} exchanges (its products and reductions, one after another), and each exchange costs"
    each = "each costs" if exchanges == 1 else several
    fewer = "" if exchanges == 1 else " A block that computes a reduction for itself from what it receives anyway needs fewer."
    grid = figures.grid_us if figures is not None else 0.0
    step_us, cost = STEP_US, "about a microsecond (by flags; a grid-wide barrier up to 3)"
    if grid:
        step_us, cost = grid, f"{grid:.2g} us by a barrier of the grid (measured)"
    counts = f"It counts only bytes and products, not dependent steps: {dependent_steps:,} steps of a recurrence follow each other here"
    if waits_known:
        return f"{counts}.{padding(rows)}"
    near = "its cost is under Device" if figures is not None and figures.cluster_us else "its cost is not measured here"
    return (
        f"{counts}, and where the state is spread over blocks and exchanged through L2, {each} {cost}, "
        f"{duration(dependent_steps * exchanges * step_us / 1e3)} together. That is an estimate for one way to do it, not a floor: an "
        f"exchange within a cluster, through distributed shared memory, or within a block avoids L2 ({near}).{fewer}{padding(rows)}"
    )


def elements_text(elements: int | None, figures: DeviceFigures | None, floor_ms: float) -> str:
    """Says how long operators other than products take at least, for the `elements` that they read or write, at one instruction of the fp32 units for
    each; "" if that is little compared with the floor of `floor_ms` milliseconds."""
    if not elements or figures is None:
        return ""
    least_ms = figures.compute_ms(2 * elements)  # a multiply-add is one instruction and two operations
    if least_ms < WORTH_ELEMENTS * floor_ms:
        return ""
    took = f"{duration(least_ms)} at one instruction of the fp32 units for each"
    return f" Its other operators handle {elements / 1e6:,.0f} million elements together: {took}."


def padding(rows: int) -> str:
    """Says how much longer products of so few rows take on tensor cores than the floor assumes; "" if that is little."""
    padded = -(-rows // FEWEST_ROWS) * FEWEST_ROWS
    if not rows or padded < WORTH_PADDING * rows:
        return ""
    longer = f"{padded / rows:.2g} times the floor's time"
    return f" A step's products have {rows} rows, which tensor cores pad to {padded}: there they take at least {longer}."


def multiplies(group: Group) -> bool:
    """Returns whether a group computes products. Kernels from the fused-loop IR do not, and neither do pools, scans and sorts."""
    family = getattr(group, "family", None)
    return family not in LOOPS and not (family == "" and group.space == "own kernel")


def floor_of_group(compiled: Compiled, group: Group) -> Floor:
    return floor_of(group.bytes, group.flops, compiled.figures, compiled.plan.precision, products=multiplies(group))


def floor_of_step(compiled: Compiled, step: dict[str, Any] | None) -> Floor | None:
    """Returns the floor of a plan step with all of its groups fused, so that only data that crosses its boundary moves. Returns None if `operators`
    names no groups."""
    groups = group_of_step(compiled, step) or groups_of(compiled, (step or {}).get("operators") or ())
    if not groups:
        return None
    moved = crossing(compiled, [name for group in groups for name in group.operators])
    apart = sum(group.bytes for group in groups)
    nbytes = min(moved, apart) if moved is not None else apart
    flops = sum(group.flops for group in groups if multiplies(group))
    if not flops:
        return floor_of(nbytes, sum(group.flops for group in groups), compiled.figures, compiled.plan.precision, products=False)
    return floor_of(nbytes, flops, compiled.figures, compiled.plan.precision)


def group_of_step(compiled: Compiled, step: dict[str, Any] | None) -> list[Group]:
    """Returns the group that corresponds to a step of the compiler's own plan. Such a step lists kinds of operators, which may also be the names of
    other operators."""
    if step is None:
        return []
    kinds = list(step.get("operators") or ())
    return [group for group in compiled.plan.groups if group.id == step.get("id") and list(group.kinds[:16]) == kinds]


def groups_of(compiled: Compiled, operators: Iterable[str]) -> list[Group]:
    """Returns the groups named by a step's operators: by id ("g1", "g1: softmax"), by a run of ids ("g1-g24", "g3-g1278 every 5"), or by an
    operator of the graph."""
    texts = [str(operator) for operator in operators]
    said = {word for text in texts for word in re.findall(r"[\w.]+", text)}
    ids = [group.id for group in compiled.plan.groups]
    for first, last, step in (run for text in texts for run in _RUN.findall(text)):
        if first in ids and last in ids:
            said.update(ids[ids.index(first) : ids.index(last) + 1 : int(step or 1)])
    return [group for group in compiled.plan.groups if group.id in said or not said.isdisjoint(group.operators)]


def crossing(compiled: Compiled, names: list[str]) -> int | None:
    """Returns the number of bytes that these operators read and write across their boundary, counting each value once, or None if the graph lacks the
    information."""
    if compiled.plan.graph is None:
        return None
    network, members = Network(compiled.plan.graph), set(names)
    if not members <= set(network.nodes):
        return None
    readers: dict[str, list[str]] = {}
    for name in members:
        for ref in {network.base(ref) for ref in refs([network.nodes[name].args, list(network.nodes[name].kwargs.values())])}:
            readers.setdefault(ref, []).append(name)
    outside = {name for name in readers if name not in members}
    written = {name for name in members if not network.is_view(name) and (network.escapes(name) or not network.readers(name) <= members)}
    return sum(_read(network, name, readers[name]) for name in outside) + sum(_bytes(network, name) for name in written)


def _read(network: Network, name: str, readers: list[str]) -> int:
    try:
        return read_within(network, name, readers)
    except (KeyError, IndexError):  # the argument is not a tensor
        return 0


def _bytes(network: Network, name: str) -> int:
    try:
        return size_bytes(network.spec(name))
    except (KeyError, IndexError):  # the argument is not a tensor
        return 0


def flops_text(count: int) -> str:
    return f"{count / 1e9:.3g} GFLOP" if count >= 1e6 else f"{count / 1e3:.3g} kFLOP"


def size(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"

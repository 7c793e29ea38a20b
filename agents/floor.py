"""The floor: the time below which no program can do a piece of work on a device. One model of it, for plans, diagnoses, requests and pages.

It is the longer of two times: the bytes that must move, at the bandwidth that a plain stream reaches, and the operations, in the fastest arithmetic
that the precision policy allows on the device. Under fp32-strict that is, where there are tensor cores for TF32, a product split into three.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.figures import Arithmetic, DeviceFigures, own_arithmetic
from compiler.graph.network import Network, size_bytes
from compiler.graph.values import refs
from compiler.planning.cost import duration

if TYPE_CHECKING:
    from agents.roles.compiled import Compiled
    from compiler import Group
    from verifier.graph import Capture

UNITS: dict[Arithmetic, str] = {
    "fp32": "fp32 units", "3xtf32": "tensor cores, each fp32 product as three of TF32", "tf32": "tensor cores in TF32",
    "half": "tensor cores with operands of 16 bits",
}  # fmt: skip


@dataclass(frozen=True)
class Floor:
    """Times in milliseconds; 0 where there is nothing to do."""

    nbytes: int
    flops: int
    memory_ms: float
    fp32_ms: float  # on the fp32 units
    compute_ms: float  # in the fastest arithmetic that the policy allows
    arithmetic: Arithmetic  # which that is

    @property
    def ms(self) -> float:
        return max(self.memory_ms, self.compute_ms)

    @property
    def bound(self) -> str:
        return "memory" if self.memory_ms >= self.compute_ms else "compute"

    def says(self) -> str:
        """The floor and what it is made of."""
        parts = [f"{size(self.nbytes)} move in {duration(self.memory_ms)}"] if self.nbytes else []
        if self.flops:
            rates = [f"{duration(self.fp32_ms)} on fp32 units"] if self.arithmetic in ("fp32", "3xtf32") else []
            rates += [f"{duration(self.compute_ms)} on {UNITS[self.arithmetic]}"] if self.arithmetic != "fp32" else []
            parts.append(f"{flops_text(self.flops)} take {', '.join(rates)}")
        return f"{duration(self.ms)} at least ({'; '.join(parts) or 'nothing to move or to compute is known'})"


def floor_of(nbytes: int | None, flops: int | None, figures: DeviceFigures, precision: str) -> Floor:
    arithmetic = fastest(figures, precision)
    count = flops or 0
    return Floor(
        nbytes or 0, count, figures.memory_ms(nbytes or 0), figures.compute_ms(count), figures.compute_ms(count, arithmetic), arithmetic
    )  # fmt: skip


def fastest(figures: DeviceFigures, precision: str) -> Arithmetic:
    """The arithmetic that the policy allows and the device does fastest."""
    own = own_arithmetic(precision)
    return own if figures.gflops(own) > figures.fp32_gflops else "fp32"


def floor_of_task(compiled: Compiled, capture: Capture) -> Floor:
    """Returns the floor of the whole task fused into one pass: inputs and weights read once, outputs written once."""
    return floor_of(capture.bytes_min, capture.flops, compiled.figures, compiled.plan.precision)


def floor_of_group(compiled: Compiled, group: Group) -> Floor:
    return floor_of(group.bytes, group.flops, compiled.figures, compiled.plan.precision)


def floor_of_step(compiled: Compiled, step: dict[str, Any] | None) -> Floor | None:
    """Returns the floor of a plan's step with all its groups fused: only what crosses its border moves. Null where `operators` names no groups."""
    groups = groups_of(compiled, (step or {}).get("operators") or ())
    if not groups:
        return None
    moved = crossing(compiled, [name for group in groups for name in group.operators])
    apart = sum(group.bytes for group in groups)
    nbytes = min(moved, apart) if moved is not None else apart
    return floor_of(nbytes, sum(group.flops for group in groups), compiled.figures, compiled.plan.precision)


def groups_of(compiled: Compiled, operators: Iterable[str]) -> list[Group]:
    """The groups that a step's operators name: by id ("g1", "g1: softmax"), or by an operator of the graph."""
    said = {word for operator in operators for word in re.findall(r"[\w.]+", str(operator))}
    return [group for group in compiled.plan.groups if group.id in said or not said.isdisjoint(group.operators)]


def crossing(compiled: Compiled, names: list[str]) -> int | None:
    """Bytes that these operators read from outside and leave to the outside, each value once; null where the graph does not tell."""
    if compiled.plan.graph is None:
        return None
    network, members = Network(compiled.plan.graph), set(names)
    if not members <= set(network.nodes):
        return None
    read: set[str] = set()
    for name in members:
        read |= {network.base(ref) for ref in refs([network.nodes[name].args, list(network.nodes[name].kwargs.values())])}
    outside = {name for name in read if name not in members}
    written = {name for name in members if not network.is_view(name) and (network.escapes(name) or not network.readers(name) <= members)}
    return sum(_bytes(network, name) for name in (*outside, *written))


def _bytes(network: Network, name: str) -> int:
    try:
        return size_bytes(network.spec(name))
    except (KeyError, IndexError):  # an argument that is no tensor
        return 0


def flops_text(count: int) -> str:
    return f"{count / 1e9:.3g} GFLOP" if count >= 1e6 else f"{count / 1e3:.3g} kFLOP"


def size(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"

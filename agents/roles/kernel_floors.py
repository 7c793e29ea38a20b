"""Compares kernels with the floors of their computations, and the busy time of their tensor cores with the time that the products need.

Tensor cores that are busy for longer than the products need multiply padding: the parts of tiles that lie outside the operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.floor import floor_of_group, floor_of_task
from agents.roles.compiled import Compiled
from agents.roles.names import short_name
from agents.roles.situation import Attempt, Situation
from compiler import Options
from compiler.planning.cost import duration, groups_of_kernels
from verifier.graph import GROUPED, Capture
from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.task_facts import task_facts
from verifier.profiling.nsight import counters

WORTH_PRODUCTS = 0.2  # minimum share of a kernel's floor that its products take for their use of tensor cores to be compared
FEWEST_SUMMED, WORTH_A_KIND = 4, 0.1  # minimum number of kernels, and minimum share of their time with either kind of floor, to sum the kinds
WORTH_BUSY = 0.05  # minimum share of the device's time for which tensor cores are busy for the whole program to be compared
# Ratios of busy time to needed time at the rate of a large product, for tiles without padding. The rate is four fifths of the tensor cores' peak.
# Medians over the kernels without padding (four and two) in the programs of bench/results/agents-strong.tar.gz (H100, 2026-11-27).
BY_WGMMA, BY_MMA = 0.85, 1.3


@dataclass(frozen=True)
class KernelFloor:
    """The floor of the groups that a kernel computes. All times are in milliseconds."""

    ms: float
    memory_ms: float
    products_ms: float  # compute time of its products in the fastest arithmetic that the policy allows; 0 without products on tensor cores

    def says(self, us: float, busy: float | None) -> str:
        """Describes the floor of a kernel that takes `us` microseconds per call and keeps its tensor cores busy for the share `busy` of that time."""
        said = f"floor of what it computes and hands on: {duration(self.ms)}, by its {self.bound}"
        if us < 1e3 * self.ms and self.bound == "bytes":
            said += " from memory (so it is below its floor: a cache holds some of them, or memory is faster than a plain copy)"
        if not busy or not self.compares:
            return said
        return f"{said}; tensor cores busy {busy * us / 1e3 / self.products_ms:.2f} times as long as its products need"

    @property
    def bound(self) -> str:
        return "bytes" if self.memory_ms >= self.products_ms else "operations"

    @property
    def compares(self) -> bool:
        """Returns whether products account for enough of the floor to serve as a reference for the use of tensor cores."""
        return self.products_ms > 0 and self.products_ms >= WORTH_PRODUCTS * self.ms


def kernel_floors(attempt: Attempt, situation: Situation) -> dict[str, KernelFloor]:
    """Returns the floors of the kernels that the compiler generated, keyed by short name. A kernel's floor is that of the groups that it computes."""
    compiled = situation.plan.data if situation.plan is not None else None
    if not isinstance(compiled, Compiled) or not isinstance(attempt.edit.options, Options) or attempt.report is None:
        return {}
    found: dict[str, KernelFloor] = {}
    computed = groups_of_kernels(compiled.plan, attempt.edit.options, attempt.report, attempt.profile, attempt.edit.source)
    for name, groups in computed.items():
        floors = [floor_of_group(compiled, group) for group in groups]
        known = found.get(short_name(name), KernelFloor(0.0, 0.0, 0.0))
        found[short_name(name)] = KernelFloor(
            known.ms + sum(floor.ms for floor in floors),
            known.memory_ms + sum(floor.memory_ms for floor in floors),
            known.products_ms + sum(floor.compute_ms for floor in floors if floor.arithmetic != "fp32"),
        )
    return found


def bounds_text(attempt: Attempt, floors: Mapping[str, KernelFloor]) -> str:
    """Adds up the kernels with a floor set by bytes and those with a floor set by operations, each kind together with its floors. Returns "" if
    nearly all of the time belongs to one kind, or if few kernels have known times."""
    report = attempt.report
    sums = {"bytes": [0.0, 0.0], "operations": [0.0, 0.0]}
    seen: set[str] = set()
    for kernel in report.kernels if report is not None else []:
        name = short_name(kernel.name)
        if (floor := floors.get(name)) is not None:
            sums[floor.bound][0] += kernel.ms
            sums[floor.bound][1] += 0.0 if name in seen else floor.ms
            seen.add(name)
    whole = sum(spent for spent, _ in sums.values())
    if len(seen) < FEWEST_SUMMED or min(spent for spent, _ in sums.values()) < WORTH_A_KIND * whole:
        return ""
    (by_bytes, floors_ms), (by_operations, others_ms) = sums.values()
    return (
        f"Kernels whose floor is set by bytes take {duration(by_bytes)} (floors {duration(floors_ms)}), those by operations "
        f"{duration(by_operations)} (floors {duration(others_ms)})."
    )


def tensor_shares(profile: Profile | None) -> dict[str, float]:
    """Returns the share of its time for which a kernel's tensor cores are busy, keyed by short name, for the kernels with counters."""
    kernels = profile.kernels if profile is not None else []
    return {short_name(kernel.name): share for kernel in kernels if (share := _busy(kernel)) is not None}


def _busy(kernel: KernelProfile) -> float | None:
    share = counters.read(kernel, counters.TENSOR_SHARE)
    return share / 100 if share is not None else None


def products_text(attempt: Attempt, situation: Situation, floors: Mapping[str, KernelFloor]) -> str:
    """Explains the ratios of busy time to needed time that `floors` gives for kernels. If it gives none, compares the whole program with the task's
    products. Returns "" if no kernel with counters uses tensor cores much."""
    compiled = situation.plan.data if situation.plan is not None else None
    report, busy = attempt.report, tensor_shares(attempt.profile)
    if not isinstance(compiled, Compiled) or situation.capture is None or report is None:
        return ""
    whole = floor_of_task(compiled, situation.capture)
    device_ms = sum(kernel.ms for kernel in report.kernels)
    spent_ms = sum(kernel.ms * busy.get(short_name(kernel.name), 0.0) for kernel in report.kernels)
    if whole.arithmetic == "fp32" or not whole.compute_ms or spent_ms < WORTH_BUSY * device_ms:
        return ""
    said = ""
    if not any(floors[name].compares and busy.get(name) for name in floors):
        said = f"In the kernels with counters, tensor cores are busy for {duration(spent_ms)} of a call, "
        said += f"{spent_ms / whole.compute_ms:.2f} times as long as the task's products need. "
    if whole.arithmetic == "3xtf32" and (compiled.figures.capability or (0, 0))[0] == 9:
        usual = (
            f"{BY_WGMMA} times as long is usual for three of TF32 by wgmma and {BY_MMA} times by mma.sync, {BY_WGMMA / 2:.2f} and {BY_MMA / 2:.2f} "
            "times for three of 16 bits"
        )
    else:
        usual = "About as long is usual"
    said = f"{said}{usual}; clearly longer is padding of tiles, rows that the task does not have, or work done twice."
    if not in_batches(situation.capture):
        return said
    said += " What the products need is counted by the shapes of the task's operators, with every row of a fixed capacity (also one that stays empty"
    return f"{said}{filled(situation.capture)}): a program that skips such rows would have less."


def in_batches(capture: Capture) -> bool:
    """Returns whether the task may have products over groups of fixed capacity: batched ones, or ones of unknown shape. Products over groups whose
    sizes depend on data are counted with the rows that there are."""
    structure = task_facts(capture).structure
    if structure is None:
        return True
    grouped = structure.operators is not None and GROUPED in structure.operators
    return not grouped and (structure.products is None or any(product.batch > 1 for product in structure.products))


def filled(capture: Capture) -> str:
    """States how many rows hold a routed row in products over groups of fixed capacity. Returns "" if that was not counted, or if the task has
    no such products."""
    structure = task_facts(capture).structure
    for sizes in capture.group_sizes:
        groups, routed = len(sizes.rows), sum(sizes.rows)
        rooms = [groups * product.m for product in (structure.products if structure else None) or [] if product.batch == groups]
        if rooms and (room := max(rooms)) > routed:
            return f"; of the {room:,} rows of products over groups, at most {routed:,} were routed to one in a call"
    return ""

"""Computes the minimum, expected and measured times of each group, which show where further optimisation pays off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from compiler.figures import DeviceFigures, library_arithmetic, own_arithmetic
from compiler.kernel.naming import kernel_base
from compiler.options import Options
from compiler.program.launched import Launch, launches
from verifier.jobs import Profile
from verifier.profiling.own_kernels import base_name
from verifier.report import Report

if TYPE_CHECKING:
    from compiler.planning.plan import CompilerPlan, Group

NEAR_FLOOR = 1 / 0.9  # multiple of the floor; a group that achieves 90 % of its floor is left alone
HOST_US = 12.0  # host time per group of an unrecorded forward, for allocations, pointers and the launch
FEWEST_RECORDED = 4  # minimum number of groups; with fewer, copying inputs and results costs as much as recording saves
WORTH = 0.05  # share of the program's time below which a group is left alone
REACHED = {"own kernel": 0.95, "library": 0.8, "pytorch": 0.7}  # fraction of the peak rates that is usually achieved
# Figures for those of our own kernels that achieve a smaller fraction, keyed by one of their operators. They are medians over the KernelBench
# programs on an H200 (bench/results/kernelbench-h200.md, "Own kernels against their floors"; 2026-11-25). There were few one-dimensional
# convolutions, so they use the figures of two-dimensional ones.
REACHED_BY = {
    "conv transpose3d": 0.15, "conv3d": 0.24, "conv transpose2d": 0.35, "conv transpose1d": 0.35, "gru": 0.4, "lstm": 0.4, "convolution": 0.43,
    "conv1d": 0.43, "batch norm": 0.58, "group norm": 0.62, "bmm": 0.66, "matrix product": 0.66, "linear": 0.7, "layer norm": 0.72, "softmax": 0.75,
}  # fmt: skip
REACHED_IN_16_BITS = {"convolution": 0.24, "batch norm": 0.54}  # figures that differ for 16-bit types
PACE = {"own kernel": 0.85, "library": 0.8, "pytorch": 0.7}  # assumed fraction of the peak rates when deciding whether forward is launch-bound

Bound = Literal["memory", "compute", "launch"]


def bound_of(group: Group, figures: DeviceFigures) -> Bound:
    """Returns what limits a group: memory traffic, arithmetic, or "launch" if its launch takes longer than both."""
    memory = figures.memory_ms(group.bytes)
    if group.floor_ms * 1e3 < figures.launch_us:
        return "launch"
    return "memory" if memory >= group.floor_ms * 0.99 else "compute"


def expected_ms(group: Group, figures: DeviceFigures, precision: str = "fp32-strict") -> float:
    """Returns the typical time of the group's kernel, but at least its launch time. Figures per kind of kernel exist only for GPUs."""
    reached = REACHED[group.space]
    if group.space == "own kernel" and figures.kind == "cuda":
        by = REACHED_BY | REACHED_IN_16_BITS if precision in ("bf16", "fp16") else REACHED_BY
        reached = min([by[kind] for kind in group.kinds if kind in by], default=reached)
    return max(group.floor_ms / reached, figures.launch_us / 1e3)


def launch_bound(plan: CompilerPlan) -> bool:
    """Returns whether the host would be the bottleneck of a forward that is not recorded as a CUDA graph. So far, this is the case for nine of the
    KernelBench programs measured on an H200, and the recorded version was the fastest for all nine. It was the fastest for only one of the other
    80."""
    if plan.graph is None or not plan.target.on_gpu or not plan.graph.recordable or len(plan.groups) < FEWEST_RECORDED:
        return False
    paces = [max(group.floor_ms / PACE[group.space], plan.figures.launch_us / 1e3) for group in plan.groups]
    return sum(paces) * 1e3 < HOST_US * len(paces)


def library_ms(group: Group, figures: DeviceFigures, precision: str) -> float:
    """Estimates the time of the library operators that would replace a group's kernel."""
    best = max(figures.memory_ms(group.eager_bytes), figures.product_ms(group.flops, precision))
    return max(best / REACHED["library"], figures.launch_us / 1e3)


PRODUCTS = ("matmul", "conv")  # families with kernels that use tensor cores, if the device has any


def task_floor(plan: CompilerPlan, bytes_min: int, flops: int) -> float:
    """Returns the floor of the whole task in milliseconds. The floor is the larger of two times: that for moving the task's bytes, and that for
    computing its products in the fastest arithmetic that the plan uses."""
    own = any(group.family in PRODUCTS for group in plan.own)
    arithmetic = own_arithmetic(plan.precision) if own else library_arithmetic(plan.precision)
    return max(plan.figures.memory_ms(bytes_min), plan.figures.compute_ms(flops, arithmetic))


def near_floor(group: Group, ms: float | None) -> bool:
    return ms is not None and 0 < ms <= group.floor_ms * NEAR_FLOOR


def left_alone(group: Group, ms: float | None, total: float) -> bool:
    """Returns whether a group is not worth measuring because it is at its floor or hardly contributes to the total time."""
    return near_floor(group, ms) or (ms is not None and total > 0 and ms / total < WORTH)


def times(plan: CompilerPlan, options: Options, report: Report, profile: Profile | None, source: str = "") -> dict[str, float]:
    """Returns the milliseconds per call that the kernels of each of our own groups take. Kernels are assigned to groups based on the launches in the
    program's text, which have the same order as the groups. If several groups run a kernel or the text is ambiguous, the kernel's time is split in
    proportion to the model's estimates for the groups."""
    seen = kernel_times(report, profile)
    running: dict[str, list[Group]] = {}  # kernel -> the groups that run it, with one entry per run
    for group, kernels in _running(plan, options, seen, source):
        for name in kernels:
            running.setdefault(name, []).append(group)
    result: dict[str, float] = {}
    for name, ms in seen.items():
        sharing = running.get(name, [])
        weight = sum(_weight(group) for group in sharing)
        for group in sharing:
            result[group.id] = result.get(group.id, 0.0) + ms * _weight(group) / weight
    return result


def groups_of_kernels(plan: CompilerPlan, options: Options, report: Report, profile: Profile | None, source: str) -> dict[str, list[Group]]:
    """Returns the groups that each of our own kernels computes. A group that runs several kernels is assigned to the longest one."""
    seen = kernel_times(report, profile)
    found: dict[str, list[Group]] = {}
    for group, kernels in _running(plan, options, seen, source):
        if kernels:
            found.setdefault(max(kernels, key=lambda name: seen[name]), []).append(group)
    return found


def _running(plan: CompilerPlan, options: Options, seen: Iterable[str], source: str) -> Iterator[tuple[Group, list[str]]]:
    groups = [group for group in plan.own if not options.on("leave-to-library", group.id)]
    return _kernels(groups, seen, [] if options.on("overlap-streams") else launches(source))  # branches change the order


def _weight(group: Group) -> float:
    return group.floor_ms or group.bytes or 1.0


def _kernels(groups: list[Group], seen: Iterable[str], launched: list[Launch]) -> Iterator[tuple[Group, list[str]]]:
    """Yields each group together with the kernels in `seen` that it runs."""
    alike: dict[str, list[Group]] = {}
    for group in groups:
        alike.setdefault(kernel_base(group.kinds), []).append(group)
    by_name: dict[str, list[str]] = {}
    for name in seen:
        by_name.setdefault(base_name(name), []).append(name)
    for base, same in alike.items():
        own = [launch for launch in launched if base_of(launch.name, alike) == base]
        if len(own) == len(same):
            yield from (
                (group, [name for kernel in launch.kernels for name in _instances(kernel, by_name)]) for group, launch in zip(same, own, strict=True)
            )
        else:
            kernels = [name for name in seen if base_of(name, alike) == base]
            yield from ((group, kernels) for group in same)


def _instances(kernel: str, by_name: dict[str, list[str]]) -> list[str]:
    """Returns the template instances with the same first type argument. Numbers are not compared, because they can be written in several ways ("9",
    "(int)9")."""
    base, _, arguments = kernel.partition("<")
    alike, first = by_name.get(base, []), arguments.partition(",")[0].rstrip(">")
    return [name for name in alike if not first or f"<{first}," in name or f"<{first}>" in name] or alike


def against_floor(plan: CompilerPlan, options: Options, report: Report, profile: Profile | None, source: str = "") -> dict[str, float]:
    """Returns `times` rounded to four digits, for display and storage."""
    return {group: float(f"{ms:.4g}") for group, ms in times(plan, options, report, profile, source).items()}


def duration(milliseconds: float) -> str:
    return f"{milliseconds * 1e3:.3g} us" if milliseconds < 1 else f"{milliseconds:.3g} ms"


def kernel_times(report: Report, profile: Profile | None) -> dict[str, float]:
    """Returns the milliseconds per call of each of our own kernels by name, taken from the verdict or, failing that, from a profile."""
    seen: dict[str, float] = {}
    for kernel in report.kernels:
        if kernel.own:
            seen[kernel.name] = seen.get(kernel.name, 0.0) + kernel.ms
    if profile is not None and not seen:
        for entry in profile.kernels:
            if entry.own:
                seen[entry.name] = seen.get(entry.name, 0.0) + entry.total_us / 1e3 / max(profile.iterations, 1)
    return seen


def base_of(kernel: str, bases: Iterable[str]) -> str | None:
    """Returns the longest base with which the kernel's name begins: "void norm_relu_2_kernel<4>(float*)" belongs to "norm_relu", not to "norm"."""
    name = base_name(kernel)
    return max((base for base in bases if name == base or name.startswith(f"{base}_")), key=len, default=None)

"""Proposes the next changes to a program, based on measurements. Each move changes one thing and states the expected gain. There are no moves if
nothing is left to try."""

from __future__ import annotations

from compiler import families
from compiler.graph.ir import Kernel
from compiler.graph.network import Network
from compiler.kernel.builder import Refused
from compiler.kernel.fuse import build
from compiler.options import Move, Options
from compiler.planning.cost import NEAR_FLOOR, left_alone, library_ms, times
from compiler.planning.plan import CompilerPlan, Group, work_of
from compiler.program.streams import LEAST_GAIN, promised
from compiler.targets.target import KernelShape, Step, neighbours
from verifier.jobs import Profile
from verifier.report import Report

SLOWER = 1.2  # multiple of the library's expected time
WAITS = 3.0  # multiple of the floor above which a kernel with atomics is assumed to be waiting for them
HOST_BOUND = 0.5  # fraction of a call during which the device is busy; below it, no kernel knob is worth trying


def moves(plan: CompilerPlan, options: Options, report: Report | None, profile: Profile | None, source: str = "") -> list[Move]:
    """Returns the possible moves, most promising first. `source` is the program's text, which shows which group launches which kernel. Only programs
    that passed get moves; failing programs are repaired by giving groups back to the library (`leave-to-library`). Groups that are at their floor or
    hardly contribute to the total time are left alone."""
    if plan.graph is None or report is None or report.timing is None:
        return []
    total = report.timing.program_ms
    if plan.floor_ms and total <= plan.floor_ms * NEAR_FLOOR:
        return []
    network = Network(plan.graph)
    found = [*_graph(plan, options, total, profile), *_streams(plan, network, options)] if plan.graph.recordable else []
    found += _channels(plan, options, total)
    measured = times(plan, options, report, profile, source)
    for group in plan.own:
        ms = measured.get(group.id)
        if options.on("leave-to-library", group.id) or left_alone(group, ms, total):
            continue
        if group.family:
            found += _family(plan, network, options, group, report, total, ms)
            continue
        try:
            kernel = build(network, group.operators)
        except Refused:
            continue
        shape = plan.target.shape_of(kernel, plan.figures, options, group.id)
        found += _split(plan, options, group, kernel, shape, total, ms)
        found += _stores(plan, options, group, kernel, shape, total, ms)
        found += _steps(options, group, plan.target.steps(kernel, shape), total, ms)
        found += _sums(options, group, total, ms)
        found += _give_back(options, group, report, total, ms)
    if profile is not None and profile.device_busy is not None and profile.device_busy < HOST_BOUND:
        found = [move for move in found if move.strategy != "block-size"]
    if plan.asked_for and sum(not options.on("leave-to-library", group.id) for group in plan.own) <= 1:
        found = [move for move in found if move.strategy != "leave-to-library"]  # if a language was requested, keep at least one kernel
    return sorted(found, key=lambda move: -move.expected_speedup)


def gain(total: float, ms: float | None, target: float, share: float = 0.2) -> float:
    """Returns the expected speedup of the program if a group's time falls from `ms` to `target` (both in ms)."""
    saved = (ms - target) if ms is not None else share * total
    return round(total / max(total - max(saved, 0.0), 0.05 * total), 3) if total else 1.0


def _graph(plan: CompilerPlan, options: Options, total: float, profile: Profile | None) -> list[Move]:
    if not plan.target.on_gpu or options.on("cuda-graph"):
        return []
    total_us = total * 1e3
    launches = profile.launches_per_iteration if profile and profile.launches_per_iteration else float(len(plan.groups))
    busy = profile.device_busy if profile else None
    idle = (1 - busy) * total_us if busy is not None else max(0.0, launches * plan.figures.launch_us * 2 - total_us * 0.5)
    if launches < 2 or idle < 0.1 * total_us:
        return []
    copied = 2 * plan.figures.memory_ms(sum(g.bytes for g in plan.groups[:1])) * 1e3 + 8
    expected = round(total_us / max(total_us - idle * 0.9 + copied, 0.05 * total_us), 3)
    seen = f"the device works only {busy:.0%} of the time" if busy is not None else f"{launches:.0f} launches in {total_us:.0f} us"
    return [
        Move(
            strategy="cuda-graph",
            options=options.with_strategy("cuda-graph"),
            expected_speedup=max(expected, 1.0),
            expectation=f"the gaps between {launches:.0f} launches go: {total_us:.0f} us towards {total_us / max(expected, 0.1):.0f} us",
            why=f"launch-bound: {seen}",
        )  # fmt: skip
    ]


def _streams(plan: CompilerPlan, network: Network, options: Options) -> list[Move]:
    """Proposes concurrent branches once the launches are recorded; before that, the host is the bottleneck."""
    if not plan.target.on_gpu or not options.on("cuda-graph") or options.on("overlap-streams"):
        return []
    schedule = promised(network, [(group.operators, group.floor_ms) for group in plan.groups])
    if schedule.gain < LEAST_GAIN:
        return []
    return [
        Move(
            strategy="overlap-streams",
            options=options.with_strategy("overlap-streams"),
            expected_speedup=round(schedule.gain, 3),
            expectation=f"branches run side by side: {schedule.serial_us:.0f} us of short kernels towards {schedule.us:.0f} us",
            why="by the model, groups that do not depend on each other are too short to fill the device",
        )  # fmt: skip
    ]


def _channels(plan: CompilerPlan, options: Options, total: float) -> list[Move]:
    """Proposes the channels-last layout. Without it, convolutions on tensor cores (the library's and ours) transpose every image, which costs an
    extra read and write."""
    if not plan.target.supports(families.by_name("half-conv")) or plan.precision == "fp32-strict" or options.on("channels-last"):
        return []
    turned = [group for group in plan.groups if group.family == "half-conv" or (group.space == "library" and group.title == "convolution")]
    if len(turned) < 2:
        return []
    moved = 2 * sum(group.bytes for group in turned)
    saved = plan.figures.memory_ms(moved)
    return [
        Move(
            strategy="channels-last",
            options=options.with_strategy("channels-last"),
            expected_speedup=round(total / max(total - saved, 0.6 * total), 3),
            expectation=f"{len(turned)} convolutions read and write images as their kernels want them: saves turning {moved / 2**20:.0f} MiB around",
            why=f"under {plan.precision} convolutions on tensor cores want channels innermost, and images come channel by channel",
        )  # fmt: skip
    ]


def _split(plan: CompilerPlan, options: Options, group: Group, kernel: Kernel, shape: KernelShape, total: float, ms: float | None) -> list[Move]:
    few = plan.figures.units * (2 if plan.target.on_gpu else 1)
    if shape.style != "rows" or kernel.rows >= few or kernel.length < 4096:
        return []
    busy = min(1.0, kernel.rows / few)
    target = max(group.floor_ms, (ms or 0) * busy)
    return [
        Move(
            strategy="parallel-split",
            group=group.id,
            options=options.with_strategy("parallel-split", group.id),
            expected_speedup=gain(total, ms, target),
            expectation=f"all {plan.figures.units} units work on the {kernel.rows} rows of {group.title}",
            why=f"{kernel.rows} rows occupy {busy:.0%} of the units",
        )  # fmt: skip
    ]


def _stores(plan: CompilerPlan, options: Options, group: Group, kernel: Kernel, shape: KernelShape, total: float, ms: float | None) -> list[Move]:
    if not plan.target.could_stream(kernel, shape):
        return []
    written = max((a.elements * 4 for a in kernel.arguments.values() if a.written), default=0)
    if written < plan.figures.unit_cache_bytes * 2:
        return []
    third = plan.figures.memory_ms(written)
    return [
        Move(
            strategy="non-temporal-stores",
            group=group.id,
            options=options.with_strategy("non-temporal-stores", group.id),
            expected_speedup=gain(total, ms, max((ms or 0) - third, group.floor_ms), 0.1),
            expectation=f"saves reading {written / 2**20:.0f} MiB that are only written: about {third:.2f} ms",
            why=f"{group.title} writes {written / 2**20:.0f} MiB, more than the caches of a core hold",
        )  # fmt: skip
    ]


def _family(plan: CompilerPlan, network: Network, options: Options, group: Group, report: Report, total: float, ms: float | None) -> list[Move]:
    """Proposes neighbouring values for each knob of a family, or the library instead of the family's kernel if the program is not faster."""
    gate = group.strategies[0]
    if not options.on(gate, group.id):
        return []
    try:
        offered = families.by_name(group.family).knobs(work_of(plan, network, group, options))
    except Refused:
        return []
    speedup, library = report.speedup, library_ms(group, plan.figures, plan.precision)
    behind = ms is not None and ms > library * SLOWER
    kernels = offered.pop("direct", None)
    found = _steps(options, group, neighbours(offered), total, ms)
    if kernels is not None and options.knob("direct", group.id, -1) < 0:
        found.append(
            Move(
                strategy="block-size",
                group=group.id,
                options=options.with_knob("direct", 1 - kernels[1], group.id),
                expected_speedup=gain(total, ms, library) + 0.001 if behind else gain(total, ms, (ms or 0) * 0.95, 0.02),
                expectation=f"{group.title} {'by unfolded windows' if kernels[1] else 'straight from the image'}, by the other kernel",
                why=f"its kernel takes {ms:.3g} ms, the library's about {library:.3g} ms" if behind else "which of the two is faster is close",
            )
        )
    slow = f"the program is not faster than eager ({speedup.ratio:.2f}x)" if speedup is not None and speedup.low <= 1.0 else ""
    if why := f"its kernel takes {ms:.3g} ms, the library's about {library:.3g} ms" if behind else slow:
        found.append(
            Move(
                strategy="leave-to-library",
                group=group.id,
                options=options.choose(gate, group.id, False),
                expected_speedup=gain(total, ms, library) if behind else 1.01,
                expectation=f"{group.title} at the library's speed, what stood around it in a kernel of its own",
                why=why,
            )
        )
    return found


def _steps(options: Options, group: Group, steps: list[Step], total: float, ms: float | None) -> list[Move]:
    """Proposes the values next to the current value of each knob; these moves come last."""
    return [
        Move(
            strategy="block-size",
            group=group.id,
            options=options.with_knob(step.knob, value, group.id),
            expected_speedup=gain(total, ms, (ms or 0) * 0.95, 0.02),
            expectation=f"{group.title}: {step.told.format(value=value, now=step.now)}",
            why=f"{group.title} is {ms / group.floor_ms:.1f} times its floor" if ms and group.floor_ms else step.why,
        )
        for step in steps
        for value in step.others
        if value not in (step.now, options.knob(step.knob, group.id, step.now))
    ]  # fmt: skip


def _sums(options: Options, group: Group, total: float, ms: float | None) -> list[Move]:
    """Proposes leaving sums at computed indices to the library, because atomics are slow if many terms are added to the same element."""
    if "atomic-sums" not in group.strategies or not options.on("atomic-sums", group.id):
        return []
    waits = ms is not None and ms > group.floor_ms * WAITS
    return [
        Move(
            strategy="leave-to-library",
            group=group.id,
            options=options.choose("atomic-sums", group.id, False),
            expected_speedup=gain(total, ms, (ms or 0) / 2, 0.02) if waits else 1.01,
            expectation=f"{group.title}: the library adds up, a kernel of our own computes what is added",
            why=f"{group.title} is {ms / group.floor_ms:.1f} times its floor" if ms and group.floor_ms else "which of the two is faster is close",
        )
    ]


def _give_back(options: Options, group: Group, report: Report, total: float, ms: float | None) -> list[Move]:
    """If the program is not faster, proposes giving up kernels that save no memory traffic compared with their separate operators."""
    speedup = report.speedup
    if speedup is None or speedup.low > 1.0 or group.eager_bytes > group.bytes * 1.2:
        return []
    return [
        Move(
            strategy="leave-to-library",
            group=group.id,
            options=options.with_strategy("leave-to-library", group.id),
            expected_speedup=1.01,
            expectation=f"{group.title} at the library's speed",
            why=f"the program is not faster than eager ({speedup.ratio:.2f}x) and the kernel of {group.title} saves no memory traffic",
        )  # fmt: skip
    ]

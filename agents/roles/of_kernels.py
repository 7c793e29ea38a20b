"""Describes to a model what the compiler and the profiler report about a program's kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agents.roles.names import short_name
from agents.roles.situation import Attempt
from compiler import DeviceFigures
from verifier.jobs import KernelProfile
from verifier.profiling.diagnosing.call_time import COPIES
from verifier.profiling.diagnosing.residency import residency
from verifier.profiling.nsight import counters
from verifier.profiling.own_kernels import base_name

TOP_KERNELS = 8
SHORTEST_OWN, SHORTEST_COUNTED = 0.015, 0.05  # minimum share of the device's time at which a kernel of the program, or of a library, is described
SHOWN_STALLS, SHOWN_PIPES = 3, 2
BANDWIDTHS = {  # for each memory, its throughput counters in percent of the peak; the first one available is used
    "DRAM": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", counters.DRAM_SHARE),
    "L2": (counters.L2_SHARE,),
    "L1 and shared memory": (counters.L1_SHARE,),
}
PIPES = {
    "tensor cores": counters.TENSOR_SHARE,
    "fp32 (fma)": counters.PIPE["fma"],
    "integer and logic (alu)": counters.PIPE["alu"],
    "loads and stores (lsu)": counters.PIPE["lsu"],
    "special functions (xu)": counters.PIPE["xu"],
    "fp64": counters.PIPE["fp64"],
}
STALLS = {  # meanings of Nsight Compute's stall reasons
    "barrier": "other warps of the block, at a barrier",
    "branch_resolving": "the target of a branch",
    "dispatch_stall": "the dispatcher",
    "imc_miss": "constants that are not in their cache",
    "drain": "stores at the end of a block",
    "lg_throttle": "a full queue of global and local accesses",
    "long_scoreboard": "data from global or local memory",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "membar": "a memory fence",
    "mio_throttle": "a full queue of shared-memory and special instructions",
    "no_instruction": "the next instruction to arrive",
    "short_scoreboard": "results of shared memory, shuffles or special functions",
    "sleeping": "a nanosleep",
    "tex_throttle": "a full queue of texture instructions",
    "warpgroup_arrive": "the other warps of a warpgroup, before wgmma",
    "gmma": "a product of wgmma",
    "wait": "the fixed latency of their own last instruction",
}
MEMORY_STALL = "long_scoreboard"
NAMED_KERNELS = 6  # maximum number of the program's own kernels without counters that are named
OTHER_STALLS = 0.1  # minimum share of a warp's time at which the sum of the remaining stall reasons is shown


def resources_text(attempt: Attempt, figures: DeviceFigures | None = None) -> str:
    """Returns what the compiler and the hardware report about the longest kernels: registers, local memory, shared memory, resident blocks, busiest
    pipes, bandwidths, and reasons for warp stalls. Returns "" if nothing is known."""
    profile, report = attempt.profile, attempt.report
    rows = {base_name(str(row.get("kernel", ""))).rsplit("::", 1)[-1]: row for row in report.build.resources} if report and report.build else {}
    shown = [kernel for kernel in sorted(profile.kernels, key=lambda k: -k.share) if worth_a_line(kernel)][:TOP_KERNELS] if profile else []
    timed = bool(report is not None and report.kernels)  # if so, their times are already listed with the measurements
    lines = [
        kernel_line(
            kernel, rows.get(base_name(kernel.name).rsplit("::", 1)[-1], {}), None if timed or profile is None else profile.iterations, figures
        )
        for kernel in shown
    ]
    lines = [line for line in lines if not line.endswith(": ")]
    if not lines:
        return "\n".join(f"- {name}: {'; '.join(compiled_figures(row))}" for name, row in list(rows.items())[:TOP_KERNELS])
    if profile is not None and (others := _uncounted([kernel for kernel in profile.kernels if kernel not in shown])):
        lines.append(f"- {others}: counters were not measured")
    return "\n".join([*lines, *_legend(shown)])


def _uncounted(kernels: Sequence[KernelProfile]) -> str:
    """Describes the kernels that have neither counters nor their own line: the program's own kernels are named, and a library's are only
    mentioned."""
    without = [kernel for kernel in kernels if not kernel.metrics and not kernel.name.startswith(COPIES)]
    own = list(dict.fromkeys(short_name(kernel.name) for kernel in without if kernel.own))
    named = [*own[:NAMED_KERNELS], *([f"{len(own) - NAMED_KERNELS} more own kernels"] if len(own) > NAMED_KERNELS else [])]
    return ", ".join([*named, *(["other kernels of libraries"] if any(not kernel.own for kernel in without) else [])])


def worth_a_line(kernel: KernelProfile) -> bool:
    return kernel.share >= (SHORTEST_OWN if kernel.own else SHORTEST_COUNTED) and (kernel.own or bool(kernel.metrics))


def _legend(kernels: Sequence[KernelProfile]) -> Iterator[str]:
    """Yields explanations of these kernels' figures, once for all of them."""
    if any(kernel.metrics for kernel in kernels):
        yield (
            "Bandwidths and pipes are percentages of their own peaks (which no program sustains; pipes: while a multiprocessor has work), while the "
            "kernel ran alone under the profiler. Asynchronous copies do not count as plain loads."
        )
    if any(kernel.grid for kernel in kernels):
        yield "Waves count launched blocks, those that return at once included."
    named = sorted({name for kernel in kernels for name, _ in _waits(kernel)} & set(STALLS))
    if named:
        means = "; ".join(f"{name.replace('_', ' ')}: {STALLS[name]}" for name in named)
        yield (
            f"Stalls are the {SHOWN_STALLS} largest shares of a warp's time, and that of waiting for memory, in which it waits for: {means}. "
            "With others, the share ready and the share issuing they add up to all of it."
        )


def _waits(kernel: KernelProfile) -> list[tuple[str, float]]:
    """Returns the main reasons why a kernel's warps stall. The share spent waiting for global memory and L2 is always included, because it decides
    between faster exchanges and faster arithmetic. A warp that issues, or that is ready while another one issues, is not stalled."""
    known = [(name, share) for name, share in kernel.stalls.items() if name not in ("selected", "not_selected") and share >= 0.005]
    return [*known[:SHOWN_STALLS], *[(name, share) for name, share in known[SHOWN_STALLS:] if name == MEMORY_STALL]]


def kernel_line(kernel: KernelProfile, compiled: Mapping[str, int | float | str], iterations: int | None, figures: DeviceFigures | None) -> str:
    """Returns the line for a kernel. `iterations` is the number of profiled iterations. If it is None, times are left out."""
    calls = kernel.calls / max(iterations or 1, 1)
    launches = f"{calls:.0f} launch{'es' if round(calls) != 1 else ''} a call"
    times = f"{kernel.mean_us:.1f} us a launch, {launches}, {100 * kernel.share:.0f} % of the device's time"
    said = [times] if iterations is not None else []
    if kernel.grid and kernel.block:
        said.append(f"grid {'x'.join(map(str, kernel.grid))}, block {'x'.join(map(str, kernel.block))}")
    known = {**compiled, **kernel.resources}
    if kernel.registers is not None:
        known["registers"] = kernel.registers
    if kernel.shared_bytes is not None:
        known["shared_bytes"] = kernel.shared_bytes
    if kernel.occupancy is not None or kernel.occupancy_possible is not None:
        known.pop("occupancy", None)
    said += compiled_figures(known, used_local=counters.total(kernel, counters.LOCAL_INSTRUCTIONS))
    said += [*_residency(kernel, figures), *_counted(kernel)]
    return f"- {short_name(kernel.name)}: {'; '.join(said)}"


def _residency(kernel: KernelProfile, figures: DeviceFigures | None) -> list[str]:
    held = residency(kernel, figures.units, figures.capability) if figures is not None and figures.kind == "cuda" else None
    said = [held.says()] if held is not None else []
    if kernel.occupancy is None and kernel.occupancy_possible is None:
        return said
    most = kernel.occupancy_possible if kernel.occupancy_possible is not None else 1.0  # counters are averages and may slightly exceed it
    reached = f"{100 * min(kernel.occupancy, most):.0f} %" if kernel.occupancy is not None else "not measured"
    possible = f" of {100 * kernel.occupancy_possible:.0f} % possible" if kernel.occupancy_possible is not None else ""
    why = f" ({kernel.occupancy_limit} bound what is possible)" if kernel.occupancy_limit and held is None else ""
    return [*said, f"occupancy {reached}{possible}{why}"]


def _counted(kernel: KernelProfile) -> list[str]:
    """Returns the bandwidths, busiest pipes and stalls, or says that they were not measured."""
    if not kernel.metrics:
        tensor = [f"{count} tensor-core instructions{_by(kernel)} in its code"] if (count := kernel.resources.get("tensor_instructions")) else []
        return [*tensor, "bandwidths, pipes and stalls: not measured"] if not kernel.stalls else [*tensor, _stalls(kernel)]
    shares = {name: next((v for metric in metrics if (v := counters.read(kernel, metric)) is not None), None) for name, metrics in BANDWIDTHS.items()}
    said = [", ".join(f"{name} {f'{share:.0f} %' if share is not None else 'not measured'}" for name, share in shares.items())]
    pipes = sorted(((v, name) for name, metric in PIPES.items() if (v := counters.read(kernel, metric)) is not None), reverse=True)
    named = ((f"{name}{_by(kernel)}" if name == "tensor cores" else name, share) for share, name in pipes[:SHOWN_PIPES])
    busiest = " then ".join(f"{name} {share:.0f} %" for name, share in named)
    issue = counters.read(kernel, counters.ISSUE_SHARE)
    said.append(f"busiest pipe: {busiest or 'not measured'}; issue slots {f'{issue:.0f} %' if issue is not None else 'not measured'}")
    return [*said, _stalls(kernel)]


def _by(kernel: KernelProfile) -> str:
    """Returns the instruction through which a kernel uses the tensor cores, or "" if that is unknown or irrelevant."""
    count, arch = kernel.resources.get("wgmma_instructions"), kernel.resources.get("arch")
    if not isinstance(count, int) or not str(arch).startswith("sm_9") or not kernel.resources.get("tensor_instructions"):
        return ""
    return " (wgmma)" if count else " (mma.sync)"


def _stalls(kernel: KernelProfile) -> str:
    waits = ", ".join(f"{name.replace('_', ' ')} {100 * share:.0f} %" for name, share in _waits(kernel))
    ready = kernel.stalls.get("not_selected", 0.0)
    shown = dict(_waits(kernel))
    others = sum(share for name, share in kernel.stalls.items() if name not in (*shown, "selected", "not_selected"))
    waits += f", others {100 * others:.0f} %" if shown and others >= OTHER_STALLS else ""
    return f"stalls: {waits or 'not measured'}" + (f"; beside these, ready while another warp issues: {100 * ready:.0f} %" if ready >= 0.1 else "")


def compiled_figures(row: Mapping[str, int | float | str], used_local: float | None = None) -> list[str]:
    """Describes a kernel's row in `BuildInfo.resources`: registers, local memory, shared memory. `used_local` is the number of accesses to local
    memory that the profiler counted, or None if it did not count them."""
    if "registers" not in row:
        return []
    spilled = [f"{row[name]} bytes {way}" for name, way in (("spill_load_bytes", "loaded"), ("spill_store_bytes", "stored")) if row.get(name)]
    said = [f"{row['registers']} registers a thread"]
    if spilled:
        seen = "" if used_local is None else ", and the profiled calls used it" if used_local else ", which the profiled calls never reached"
        said.append(f"spills or local arrays: {' and '.join(spilled)} by a thread{seen}")
    elif "spill_load_bytes" in row:
        said.append("no spills")
    elif used_local is not None:
        said.append("local memory used: spills or local arrays" if used_local else "no spills")
    said.append(f"{row.get('shared_bytes', 0)} bytes of shared memory a block")
    if "occupancy" in row:
        said.append(f"occupancy of {100 * float(row['occupancy']):.0f} % possible, limited by {row.get('occupancy_limit', 'its registers')}")
    widest = row.get("widest_load_bytes")
    return said + [f"widest plain load {widest} bytes"] if widest else said

"""Reads Nsight Compute's table of launches with their counters, using an allow-list of columns; the host, process and command columns are dropped.

The table comes from a party's sandbox, and a party could have written it. It is therefore read as plain CSV with limits, and none of its contents
count as evidence.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verifier.jobs import KernelProfile
from verifier.profiling.nsight import counters
from verifier.profiling.nsight.metrics import completed, normal
from verifier.profiling.own_kernels import base_name
from verifier.profiling.redact import last_lines, redacted

MAX_LAUNCHES = 4096
MAX_COLUMNS = 20_000
_METRIC = re.compile(r"[a-z][a-z0-9]*__[\w.]{1,160}")
_HALF_A_NAMESPACE = re.compile(r"(?<!<)\bunnamed>::")  # how Nsight Compute 2025.3 writes `at::native::<unnamed>::`
_TRIPLE = re.compile(r"\((\d+), (\d+), (\d+)\)")
_LIMITS = {"registers": "registers", "shared_mem": "shared memory", "warps": "warps", "blocks": "blocks"}


@dataclass(frozen=True)
class Launch:
    """One launch, as replayed."""

    kernel: str  # demangled
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    metrics: dict[str, float] = field(default_factory=dict)


def read_launches(text: str) -> list[Launch]:
    """Reads the table in Nsight Compute's output: the raw page, which has a row of units followed by one row per launch. Skips all other lines."""
    lines = text.splitlines()
    begin = next((index for index, line in enumerate(lines) if line.startswith('"ID",')), None)
    if begin is None:
        return []
    body = [line for line in lines[begin:] if line.startswith('"')]
    try:
        rows = list(csv.reader(io.StringIO("\n".join(body)), strict=True))
    except csv.Error:
        return []
    header = rows[0][:MAX_COLUMNS]
    if len(rows) < 2:
        return []
    units, found = rows[1], []
    at = {name: index for index, name in enumerate(header)}
    counted = [(index, name) for index, name in enumerate(header) if _METRIC.fullmatch(name)]
    for row in rows[2 : MAX_LAUNCHES + 2]:
        if len(row) != len(header):
            continue
        metrics = {}
        for index, name in counted:
            value = normal(row[index], units[index] if index < len(units) else "")
            if value is not None:
                metrics[name] = value
        kernel = _HALF_A_NAMESPACE.sub("", _cell(row, at, "Kernel Name"))
        found.append(Launch(kernel, _triple(_cell(row, at, "Grid Size")), _triple(_cell(row, at, "Block Size")), metrics))
    return found


def _cell(row: list[str], at: dict[str, int], name: str) -> str:
    return row[at[name]] if name in at and at[name] < len(row) else ""


def _triple(text: str) -> tuple[int, int, int] | None:
    match = _TRIPLE.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


# Matching to the kernels of a profile


def short(kernel: str) -> str:
    """Returns the unqualified function name."""
    return base_name(kernel).rsplit("::", 1)[-1]


def _spelled(kernel: str) -> str:
    """Strips the parts of a demangled name that differ between profilers: namespaces, casts, spaces, return type, parameters."""
    text = re.sub(r"\(anonymous namespace\)|<unnamed>|\([\w :]+\)(?=[\d-])", "", kernel)
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth <= 0:
            text = text[:index]
            break
    return re.sub(r"\s+|\b\w+::|^void\b", "", text)


def attach(kernels: list[KernelProfile], launches: list[Launch]) -> list[KernelProfile]:
    """Attaches launch counters to their kernels, averaged over launches."""
    groups: dict[int, list[Launch]] = {}
    for launch in launches:
        index = _whose(kernels, launch)
        if index is not None and launch.metrics:
            groups.setdefault(index, []).append(launch)
    return [_measured(kernel, groups.get(index, [])) for index, kernel in enumerate(kernels)]


def kernels_of(launches: list[Launch], own: Callable[[str], bool]) -> list[KernelProfile]:
    """Builds the kernels of a call from these launches alone, longest first. Times are measured during the replay."""
    groups: dict[tuple[Any, ...], list[Launch]] = {}
    for launch in launches:
        groups.setdefault((launch.kernel, launch.grid, launch.block), []).append(launch)
    times = {key: sum(launch.metrics.get(counters.TIME, 0.0) for launch in group) / 1e3 for key, group in groups.items()}
    total = sum(times.values()) or 1.0
    found = [
        KernelProfile(
            name=kernel[:2000],
            own=own(kernel),
            calls=len(groups[kernel, grid, block]),
            total_us=time,
            mean_us=time / len(groups[kernel, grid, block]),
            share=time / total,
            grid=grid,
            block=block,
        )
        for (kernel, grid, block), time in times.items()
    ]
    return sorted(found, key=lambda kernel: -kernel.total_us)


def _whose(kernels: list[KernelProfile], launch: Launch) -> int | None:
    """Matches a launch to a kernel: first by function name, then (among instances of one template) by arguments, then by grid and block, and finally
    by the longest time."""
    name = short(launch.kernel)
    same = [index for index, kernel in enumerate(kernels) if short(kernel.name) == name]
    ways: tuple[Callable[[KernelProfile], bool], ...] = (
        lambda kernel: _spelled(kernel.name) == _spelled(launch.kernel) and (kernel.grid, kernel.block) == (launch.grid, launch.block),
        lambda kernel: (kernel.grid, kernel.block) == (launch.grid, launch.block),
        lambda kernel: _spelled(kernel.name) == _spelled(launch.kernel),
    )
    for matches in ways:
        narrowed = [index for index in same if matches(kernels[index])]
        if narrowed:
            return narrowed[0]
    return same[0] if len(same) == 1 else None


def _measured(kernel: KernelProfile, launches: list[Launch]) -> KernelProfile:
    if not launches:
        return kernel
    names = dict.fromkeys(name for launch in launches for name in launch.metrics)
    metrics = {}
    for name in names:
        values = [launch.metrics[name] for launch in launches if name in launch.metrics]
        metrics[name] = sum(values) / len(values)
    metrics = completed(metrics)
    update: dict[str, object] = {"metrics": metrics}
    if counters.OCCUPANCY in metrics:
        update["occupancy"] = metrics[counters.OCCUPANCY] / 100
    if counters.OCCUPANCY_POSSIBLE in metrics:
        update["occupancy_possible"] = metrics[counters.OCCUPANCY_POSSIBLE] / 100
        limits = {_LIMITS[what]: metrics[name] for what, name in counters.OCCUPANCY_LIMIT.items() if name in metrics}
        if limits:
            # The driver sets aside only as much shared memory as the other limits can use, so if limits are equal, shared memory comes last.
            update["occupancy_limit"] = min(limits, key=lambda what: (limits[what], what == "shared memory"))
    if kernel.registers is None and counters.REGISTERS in metrics:
        update["registers"] = int(metrics[counters.REGISTERS])
    measured = kernel.model_copy(update=update)
    shares = counters.stall_shares(measured)
    return measured.model_copy(update={"stalls": dict(sorted(((n, round(s, 4)) for n, s in shares.items() if s > 0), key=lambda item: -item[1]))})


# Error messages

_KNOWN = (
    (
        "ERR_NVGPUCTRPERM",
        "this host lets only administrators read GPU counters (ERR_NVGPUCTRPERM): load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
        "(a file in /etc/modprobe.d with `options nvidia NVreg_RestrictProfilingToAdminUsers=0`, then reboot)",
    ),
    ("driver resource was unavailable", "another tool holds the GPU's counters (DCGM, another profiler): dcgmi profile --pause, or end it"),
    ("LibraryNotLoaded", "the profiler's driver interface cannot be loaded: in a virtual machine or gVisor the GPU's counters are not reachable"),
    ("not supported on this GPU", "this GPU provides no counters to Nsight Compute"),
    ("is not supported on vGPU", "the GPU is virtual, and its host provides no counters"),
    ("No kernels were profiled", "no kernel ran within the watched calls"),
    ("libdw.so", "a library is missing: apt-get install libdw1"),
)
_UNKNOWN_METRIC = re.compile(r"(?:Failed to find metric|[Mm]etric\(?s?\)? not found:?|[Uu]nknown metric|[Ii]nvalid metric)(?P<rest>[^\n]*)")


def problem(log: str, printed: str) -> str:
    """Explains why there is no table, based on the tool's log and the output printed around it."""
    for mark, sentence in _KNOWN:
        if mark in log or mark in printed:
            return sentence
    errors = [line for line in log.splitlines() if line.startswith("==ERROR==")]
    if not errors and (launches := read_launches(log)):
        names = ", ".join(dict.fromkeys(launch.kernel for launch in launches))[:300]
        return f"its table names {names}: none is a kernel of this profile, or all counters are empty"
    return last_lines("\n".join(errors)) or last_lines(log, 2) or last_lines(printed) or "it wrote nothing"


def unknown_metrics(log: str, asked: list[str]) -> list[str]:
    """Returns the requested counters that this GPU or this version of Nsight Compute does not support."""
    said = " ".join(match["rest"] for match in _UNKNOWN_METRIC.finditer(log))
    return [name for name in asked if name in said or re.search(rf"\b{re.escape(name.partition('.')[0])}\b(?![.\w])", said)]


def refused_metrics(log: str) -> bool:
    """Returns whether an error concerns counters without naming them."""
    return any(line.startswith("==ERROR==") and "metric" in line.lower() for line in log.splitlines())


def warnings(log: str) -> list[str]:
    """Returns the tool's own warnings that affect the measurements."""
    told = [line.removeprefix("==WARNING==").strip() for line in log.splitlines() if line.startswith("==WARNING==")]
    return list(dict.fromkeys(redacted(text)[:300] for text in told if "unmodified GPU clocks" not in text))[:8]

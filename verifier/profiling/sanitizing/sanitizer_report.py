"""Converts sanitizer output into findings without addresses or paths; equal findings are counted.

A party could have forged this output. It is therefore read as text, and a finding is a hint for the program's author, never a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from verifier.jobs import Fault, SanitizerTool
from verifier.profiling.own_kernels import base_name
from verifier.profiling.redact import redacted

MAX_FAULTS = 100
_BAR = "========="
_TRIPLE = r"\((\d+),(\d+),(\d+)\)"
_THREAD = re.compile(rf"by thread {_TRIPLE} in block {_TRIPLE}")
_AT = re.compile(r"(?:^|\s)at (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>[^\s:]+):(?P<line>\d+))?")
_RACE = re.compile(r"(?P<what>Read|Write|Atomic) access at (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>[^\s:]+):(?P<line>\d+))?")
_ACCESS = re.compile(r"Invalid __(?P<space>\w+)__ (?P<how>\w+(?: \w+)?) of size (?P<size>\d+)")
_HEADS: tuple[tuple[str, str], ...] = (
    ("Invalid __", "out of bounds"),
    ("Uninitialized __", "uninitialized read"),
    ("Race reported", "race"),
    ("Potential ", "race"),
    ("Barrier error", "barrier"),
    ("Leaked ", "leak"),
    ("Program hit", "error"),
    ("Unspecified launch failure", "error"),
    ("Device exception", "error"),
    ("Stack overflow", "error"),
)


def gpu_faults(text: str, tool: SanitizerTool) -> list[Fault]:
    """Reads the faults in compute-sanitizer's log."""
    return _counted(_gpu_fault(block, tool) for block in _blocks(text))


def _blocks(text: str) -> Iterator[list[str]]:
    """Yields the lines of each finding: a headline, then its indented details."""
    block: list[str] = []
    for line in text.splitlines():
        if not line.startswith(_BAR):
            continue
        rest = line[len(_BAR) :]
        stripped = re.sub(r"^(?:ERROR|Error|WARNING|Warning|WARN|INFO): ", "", rest.strip())
        if any(stripped.startswith(head) for head, _ in _HEADS):
            if block:
                yield block
            block = [stripped]
        elif not rest.strip() or "SUMMARY" in rest:
            if block:
                yield block
            block = []
        elif block:
            block.append(rest.strip())
    if block:
        yield block


def _gpu_fault(block: list[str], tool: SanitizerTool) -> Fault | None:
    head, whole = block[0], " ".join(block)
    kind = next(kind for mark, kind in _HEADS if head.startswith(mark))
    values: dict[str, Any] = {}
    if kind == "race":
        sites = list(_RACE.finditer(whole))
        if sites:
            values["kernel"] = _kernel(sites[0]["kernel"])
            values["line"] = int(sites[0]["line"]) if sites[0]["line"] else None
            each = [site["what"].lower() + (f" in line {site['line']}" if site["line"] else "") for site in sites[:4]]
            values["message"] = "threads race for shared memory: " + " against ".join(dict.fromkeys(each))
    else:
        at = _AT.search(" ".join(block[1:]))
        if at is not None:
            values["kernel"] = _kernel(at["kernel"])
            values["line"] = int(at["line"]) if at["line"] else None
    thread = _THREAD.search(whole)
    if thread is not None:
        numbers = [int(number) for number in thread.groups()]
        values["thread"], values["block"] = tuple(numbers[:3]), tuple(numbers[3:])
    access = _ACCESS.match(head)
    if access is not None:
        values["access"] = f"{access['how']} of {access['size']} bytes, {access['space']} memory"
        if "is misaligned" in whole:
            kind = "misaligned"
        beyond = re.search(r"is ([\d,]+) bytes (before|after|inside) the nearest allocation .*?of size ([\d,]+) bytes", whole)
        values["message"] = f"{values['access']}" + (f", {beyond[1]} bytes {beyond[2]} an allocation of {beyond[3]} bytes" if beyond else "")
    elif "Host API" in head or (kind == "uninitialized read" and "cudaMemcpy" in whole):
        return None  # a copy of data that nothing reads, such as a library's padding
    return Fault(tool=tool, kind=kind, message=redacted(values.pop("message", head))[:300], **values)


def _kernel(name: str) -> str:
    return redacted(base_name(name))[:160]


# CPU sanitizers

_ASAN = re.compile(r"==\d+==\s*ERROR: AddressSanitizer: (?P<kind>[\w-]+)")
_ASAN_ACCESS = re.compile(r"^(?P<how>READ|WRITE) of size (?P<size>\d+)", re.MULTILINE)
_ASAN_WHERE = re.compile(r"is located (?P<by>\d+) bytes (?P<side>(?:to the )?\w+) (?:of )?(?P<size>\d+)-byte region")
_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ in (?P<function>.+?) (?P<file>\S+?):(?P<line>\d+)", re.MULTILINE)
_UBSAN = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):\d+: runtime error: (?P<message>.+)$", re.MULTILINE)
_SOURCE = re.compile(r"\.(?:cpp|cc|cxx|c|h|hpp|cu|cuh)$")
_SIDES = {"to the right": "after", "to the left": "before"}
_KINDS = {"heap-buffer-overflow": "out of bounds", "stack-buffer-overflow": "out of bounds", "global-buffer-overflow": "out of bounds"}


def cpu_faults(text: str) -> list[Fault]:
    """Reads the faults in AddressSanitizer's and UndefinedBehaviorSanitizer's logs."""
    marks = [*(match.start() for match in _ASAN.finditer(text)), len(text)]
    found = [_address(text[begin:end]) for begin, end in zip(marks, marks[1:], strict=False)]
    found += [
        Fault(tool="undefined", kind="undefined behaviour", message=redacted(match["message"])[:300], line=int(match["line"]))
        for match in _UBSAN.finditer(text)
    ]
    return _counted(found)


def _address(text: str) -> Fault:
    match = _ASAN.match(text)
    assert match is not None
    access, where = _ASAN_ACCESS.search(text), _ASAN_WHERE.search(text)
    frame = next((frame for frame in _FRAME.finditer(text) if _SOURCE.search(frame["file"]) and "/sanitizer" not in frame["file"]), None)
    how = f"{access['how'].lower()} of {access['size']} bytes" if access else ""
    side = _SIDES.get(where["side"], where["side"]) if where else ""
    beyond = f", {where['by']} bytes {side} an allocation of {where['size']} bytes" if where else ""
    return Fault(
        tool="address",
        kind=_KINDS.get(match["kind"], match["kind"].replace("-", " ")),
        message=(how + beyond) or match["kind"],
        kernel=redacted(frame["function"].partition("(")[0])[:160] if frame else "",
        access=how,
        line=int(frame["line"]) if frame else None,
    )


def _counted(faults: Any) -> list[Fault]:
    """Merges equal findings. Findings that differ only in thread and block count as equal."""
    found: dict[tuple[Any, ...], Fault] = {}
    for fault in faults:
        if fault is None:
            continue
        distance = re.sub(r"\d+ bytes (before|after|inside)", r"\1", fault.message)
        key = (fault.tool, fault.kind, fault.kernel, fault.line, fault.access, distance)
        if key in found:
            found[key] = found[key].model_copy(update={"count": found[key].count + 1})
        elif len(found) < MAX_FAULTS:
            found[key] = fault
    return list(found.values())

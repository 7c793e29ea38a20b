"""The `overlap-streams` strategy: independent branches of a forward run concurrently on streams that fork from the main stream and join it again.
Inside a CUDA graph, this pays off for kernels that are too short to fill the device.

The strategy works on the printed statements. A section consists of all statements of one group: allocations and a launch or library call. A section
runs after every section that defines a variable that it reads. With this strategy, no kernel writes in place (forward.py ensures this) and every
variable lives until forward returns, so no memory is reused across streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.graph.network import Network, refs

SIDES = 3  # number of streams in addition to the main stream
SYNC_US = 1.5  # cost of making one stream wait for another, as an edge in a CUDA graph
LEAST_US = 4.0  # minimum time of a kernel in a CUDA graph
LEAST_GAIN = 1.05  # according to the model
FULL_US = 25.0  # a kernel that takes this long fills the device, so no other kernel runs concurrently with it
NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*")
DEFINED = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*) = ")
START = -1  # represents everything that runs before the first section


@dataclass
class Section:
    lines: list[str]
    us: float  # estimated time when it runs alone

    @property
    def share(self) -> float:
        """Fraction of the device that the section occupies."""
        return min(1.0, self.us / FULL_US)


def names(sections: int) -> set[str]:
    """Returns the variables that the strategy prints."""
    return {"main", "begun", *(f"side_{n}" for n in range(1, SIDES + 1)), *(f"done_{n}" for n in range(1, sections + 1))}


def estimate_us(floor_ms: float) -> float:
    return max(LEAST_US, floor_ms * 1.4e3)


def dependencies(sections: list[Section], shared: list[str]) -> list[list[int]]:
    """Returns the sections for which each section must wait. `shared` holds the expressions of state that sections write."""
    owner: dict[str, int] = {}
    touched: dict[str, int] = {}
    found = []
    for at, section in enumerate(sections):
        own: set[str] = set()
        needed: set[int] = set()
        for line in section.lines:
            match = DEFINED.match(line)
            read = line[match.end() :] if match else line
            needed |= {owner[name] for name in NAME.findall(read) if name in owner and name not in own}
            if match:
                own.update(match[1].split(", "))
        for state in shared:
            if any(state in line for line in section.lines):
                needed |= {touched[state]} if state in touched else set()
                touched[state] = at
        owner.update(dict.fromkeys(own, at))
        found.append(sorted(needed - {at}))
    return found


@dataclass
class Schedule:
    streams: list[int]  # the stream of each section; 0 is the main one
    us: float
    serial_us: float

    @property
    def gain(self) -> float:
        return self.serial_us / max(self.us, 1e-9)


def schedule(sections: list[Section], needs: list[list[int]]) -> Schedule:
    """Assigns each section in turn to the stream on which it can start earliest. Ties go to the stream of the section for which it waits longest."""
    free = [0.0] * (SIDES + 1)
    ends: list[float] = []
    streams: list[int] = []
    device = 0.0  # the time until which kernels that fill the device block others
    for section, needed in zip(sections, needs, strict=True):
        last = max(needed, key=lambda at: ends[at], default=None)

        def begins(stream: int, needed: list[int] = needed, device: float = device) -> float:
            return max([free[stream], device, *(ends[at] + (SYNC_US if streams[at] != stream else 0.0) for at in needed)])

        best = min(range(SIDES + 1), key=lambda s: (begins(s), last is None or streams[last] != s, s))
        if section.share >= 1:
            begin = max([begins(best), *ends])
            device = begin + section.us
        else:
            begin = begins(best)
        streams.append(best)
        ends.append(begin + section.us)
        free[best] = ends[-1]
    serial = sum(section.us for section in sections)
    return Schedule(streams, max([*ends, sum(section.us * section.share for section in sections)], default=0.0), serial)


def overlapped(sections: list[Section], device: str, shared: list[str]) -> list[str]:
    """Returns the statements of all sections in their original order, with branches moved to side streams. `device` is an expression, or "" for the
    current device."""
    needs = dependencies(sections, shared)
    streams = schedule(sections, needs).streams
    if not any(streams):
        return [line for section in sections for line in section.lines]
    position = [streams[: at + 1].count(stream) for at, stream in enumerate(streams)]  # 1-based position of a section in its stream
    seen = [[0] * (SIDES + 1) for _ in range(SIDES + 1)]  # (stream, other stream) -> finished sections of the other stream
    known: list[list[int]] = []  # the same, at the end of each section
    waits: list[list[int]] = []
    started = {0}
    for at, stream in enumerate(streams):
        waits.append([] if stream in started else [START])
        started.add(stream)
        for needed in sorted(needs[at], key=lambda n: -position[n]):
            other = streams[needed]
            if other != stream and seen[stream][other] < position[needed]:
                waits[-1].append(needed)
                seen[stream] = [max(a, b) for a, b in zip(seen[stream], known[needed], strict=True)]
        seen[stream][stream] = position[at]
        known.append(list(seen[stream]))
    last = {stream: at for at, stream in enumerate(streams)}
    joined = []  # last section of each side stream, unless the main stream already waits for it
    for stream in sorted(set(streams) - {0}):
        if seen[0][stream] < position[last[stream]]:
            joined.append(last[stream])
    marked = {at for own in [*waits, joined] for at in own}
    used = sorted(set(streams) - {0})
    current = f"torch.cuda.current_stream({device})"
    lines = [f"main = {current}"]
    lines.append(f"{', '.join(f'side_{n}' for n in used)} = {', '.join(f'torch.cuda.Stream({device})' for _ in used)}")
    lines += ["begun = main.record_event()"] if START in marked else []
    before = 0
    for at, section in enumerate(sections):
        stream = streams[at]
        name = f"side_{stream}" if stream else "main"
        own = [f"{name}.wait_event({'begun' if waited == START else f'done_{waited + 1}'})" for waited in waits[at]]
        own += [line.replace(", stream)", f", {name}.cuda_stream)") if stream else line for line in section.lines]
        own += [f"done_{at + 1} = {name}.record_event()"] if at in marked else []
        if stream and stream != before:
            lines.append(f"with torch.cuda.stream({name}):")
        lines += [f"    {line}" if stream else line for line in own]
        before = stream
    return lines + [f"main.wait_event(done_{at + 1})" for at in joined]


def promised(network: Network, groups: list[tuple[list[str], float]]) -> Schedule:
    """Returns the schedule that the model predicts for the strategy. `groups` are pairs (operators, floor in ms) in execution order."""
    maker = {name: at for at, (operators, _) in enumerate(groups) for name in operators}
    needs: list[list[int]] = []
    for at, (operators, _) in enumerate(groups):
        waiting, found, known = list(operators), set(), set()
        while waiting:
            node = network.nodes[waiting.pop()]
            for name in refs([node.args, list(node.kwargs.values())]):
                if name in maker and maker[name] != at:
                    found.add(maker[name])
                elif name in network.nodes and name not in maker and name not in known:  # a view
                    known.add(name)
                    waiting.append(name)
        needs.append(sorted(n for n in found if n < at))
    return schedule([Section([], estimate_us(floor)) for _, floor in groups], needs)


__all__ = ["Schedule", "Section", "dependencies", "estimate_us", "names", "overlapped", "promised", "schedule"]

"""Program and baselines, interleaved in random ABBA blocks, each in its own process; medians and what the judge's clock says of them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from verifier.correctness.bounds import same_values
from verifier.correctness.fingerprint import Fingerprint, fingerprint
from verifier.judge.asking import Party
from verifier.judge.memory import EASE, large, too_little
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values, reserve, views, write
from verifier.layout import Spec, place, read_specs, view
from verifier.report import Baseline, Rival
from verifier.timing.idleness import Watch, ending, pause

POISON = 0xA5
CLOCK_SHARE, CLOCK_SLACK_NS = 0.10, 10_000
BUSY, COPY_SLACK_NS, AHEAD_SLACK_NS = 1.5, 500_000, 100_000
GIVEN_BACK_SECONDS = 5.0
MOVED = 0.5  # share of what is saved within the interval that may come back outside it
LEAST_NS = 1_000  # of a call: the shim calls a Python function, which makes a tensor
SIDES = 2**0.5  # times the doubt about one side, for the difference of two
CLAIM = 2.0  # times as fast as eager, from which on the judge's clock must be steady enough to see what is saved


@dataclass
class Call:
    """One timed call. Nanoseconds."""

    inner: int  # by the shim
    wall: int  # by the judge
    copied: int  # from the end of the interval until the outputs were in the judge's memory
    ahead: int  # from when the inputs were written until the interval began
    tree: object
    specs: list[Spec]
    outputs: list[torch.Tensor]  # private copies; a baseline's of gigabytes lie where its next call will write
    again: list[torch.Tensor | Fingerprint] | None  # outputs of the call before, read once more; see `kept`
    inputs_intact: list[bool]
    shared: list[str] = field(default_factory=list)  # whose memory each output is, by the party's word
    laid: bool = False  # whether outputs had to be laid out as the task's are, by the party's word


@dataclass
class Caller:
    """Makes timed calls of one party, alternating between two places for inputs and outputs."""

    party: Party
    expected: list[Spec]  # of the outputs, to make room for them
    limit: float
    slot: int = 0
    need: int = 0  # bytes of the device that a program's process takes which needs no more than PyTorch; zero: not known
    backward: dict[str, Any] | None = None  # what `gradients.forward_backward` wants; null: forward alone
    layout: list[list[int] | None] = field(default_factory=list)  # strides that a program's outputs must have when the clock stops
    previous: list[Spec] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)  # of a baseline: on the programs
    processor: int | None = None  # of those on which sides are timed

    def call(self, values: Values, rng: int, flush: bool = True, fresh_address: bool = True, reread: bool = False) -> Call:
        party, device = self.party, self.party.device
        self.slot = 1 - self.slot if fresh_address else self.slot
        offsets, half = place(self.expected)
        room = [spec.nbytes for spec in self.expected]
        need = EASE * (values.nbytes + half)
        later = large(half)  # outputs of the call before are read in a request of their own, where this call's were
        device.trim(need)
        message = reserve(party, "in", values.specs, slots=2, slot=self.slot)
        memory = party.arena("out", 2 * half if reread and not later else half)
        memory.bytes.fill_(POISON)
        device.sync()
        again = [half + offset for offset in offsets] if reread and self.previous and not later else None
        handing = 0

        def hand_over() -> None:
            nonlocal handing
            waited = device.wait_ns()  # before every side's call: it makes the GPU change to the judge's context, and that is in the time ahead
            for watch in self.watches:
                watch.waited(waited)
            begin = time.monotonic_ns()
            write(party, message, values.tensors, values.specs)
            if flush:
                device.flush_caches()
            device.sync()
            handing = time.monotonic_ns() - begin

        slot = {"arena": "out", "offsets": offsets, "room": room}
        request = {
            "tree": values.tree,
            "rng": rng,
            "slot": slot,
            "again": again,
            "backward": self.backward,
            "layout": self.layout,
            "hold": reread and not later,
            **message,
        }
        if self.processor is not None:
            party.binding.stand_on(self.processor)
        if later:
            request["kept"] = "both" if reread and self.previous else reread
        if reread and later:
            request["need"] = need
        try:
            exchange = party.timed(request, self.limit, hand_over)
        except PartyFailure as failure:
            if failure.error_class == "OutOfMemoryError":
                self._short(failure)
            raise
        described = exchange.frame.message
        specs = read_specs(described.get("specs", []))
        fits = bool(described.get("copied")) and len(specs) == len(offsets) and all(s.nbytes <= r for s, r in zip(specs, room, strict=True))
        where = memory.bytes
        if fits and not (later and not party.has_program):  # a baseline's stay where they are until its next call
            where = where[:half].clone()
        outputs = views(where, specs, offsets) if fits else []
        before = None
        if fits and reread and self.previous:
            if later:
                device.sync()  # the copy of this call's outputs is made before the party writes where they lie
                party.ask("again", {"slot": slot}, self.limit)
            at = offsets if later else [half + offset for offset in offsets]
            before = [kept(view(memory.bytes, spec, offset), copy=True) for spec, offset in zip(self.previous, at, strict=True)]
        self.previous = specs if fits and (reread or not later) else []
        arena = party.arenas["in"].bytes
        intact = [
            same_values(view(arena, spec, offset), tensor)
            for tensor, spec, offset in zip(values.tensors, values.specs, message["offsets"], strict=True)
        ]
        device.sync()  # what was copied above is, before the party is asked to write there
        ahead = handing + exchange.refreshed
        shared = [name for name in described.get("shared", []) if isinstance(name, str)]
        laid = described.get("laid") is True
        return Call(exchange.inner, exchange.wall, exchange.copied, ahead, described.get("tree"), specs, outputs, before, intact, shared, laid)

    def held(self, number: int, specs: list[Spec]) -> list[torch.Tensor] | None:
        """Outputs of an earlier call, by its number since the program was constructed, as they are now; null where the party has none. They lie where
        its next call will write."""
        offsets, size = place(specs)
        memory = self.party.arena("out", size)
        answer = self.party.ask("held", {"number": number, "slot": {"arena": "out", "offsets": offsets}}, self.limit).message
        return views(memory.bytes, specs, offsets) if answer.get("copied") is True else None

    def _short(self, failure: PartyFailure) -> None:
        """A program that runs out of memory is to blame where its process could have had what PyTorch's call needs; this is looked at when it has
        ended, so that nothing depends on what it says. Else it is the device that is too small, as for a baseline always."""
        party, device = self.party, self.party.device
        total = device.total_bytes()
        if party.has_program:
            party.end()
        free, deadline = device.free_bytes(), time.monotonic() + GIVEN_BACK_SECONDS
        while party.has_program and free is not None and free < self.need and time.monotonic() < deadline:
            time.sleep(0.1)  # the driver frees what a killed process held a moment after its end
            free = device.free_bytes()
        if total is None or free is None or (party.has_program and free >= self.need):
            return
        failure.request = "memory"
        side = "a program as frugal as PyTorch" if party.has_program else "a baseline"
        failure.message = f"{too_little(device, 'for this task')}, and {side} needs {self.need / 2**30:.1f} GiB"


def kept(tensor: torch.Tensor, copy: bool = False) -> torch.Tensor | Fingerprint:
    """What of an output is kept until the next call, to see whether it has changed by then: of gigabytes no second copy."""
    if large(tensor.nbytes):
        return fingerprint(tensor)
    return tensor.clone(memory_format=torch.preserve_format) if copy else tensor


@dataclass
class Side:
    """The program, or a baseline, with its samples: milliseconds, one list a block."""

    name: Baseline | Rival | None
    caller: Caller
    blocks: list[list[float]] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    wall: list[int] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    ahead: list[int] = field(default_factory=list)
    round_trip: int = 0  # ns

    def calibrate(self, rounds: int = 9) -> None:
        """Before the blocks and after them, and the shorter counts: a machine busy at one of the two (4 ms more, a turn of its scheduler, were
        seen on an H200's host) would make the judge's clock seem to run ahead of the program's, and a slow answer would buy time for work."""
        found = self.caller.party.empty(rounds)
        self.round_trip = min(self.round_trip or found, found)

    def add(self, call: Call) -> float:
        """Its milliseconds."""
        self.inner.append(call.inner)
        self.wall.append(call.wall)
        self.copied.append(call.copied)
        self.ahead.append(call.ahead)
        return call.inner / 1e6

    @property
    def within(self) -> list[int]:
        """Of each call what the judge's clock counts beyond the shim's: a round trip, where both are right."""
        return [wall - inner for wall, inner in zip(self.wall, self.inner, strict=True)]

    def outside(self, copies: float = 1.0) -> list[float]:
        """Of each call all that the shim does not count, by the judge's clock."""
        return [a + copies * c + w for a, c, w in zip(self.ahead, self.copied, self.within, strict=True)]


def middle(values: Sequence[float]) -> float:
    """As the score takes the middle of calls (`intervals.bootstrapped`): of the two places where inputs and outputs lie, each by itself."""
    return (statistics.median(values[0::2]) + statistics.median(values[1::2])) / 2


def clock_finding(program: Side, eager: Side) -> str:
    """Empty, or how the program's clock disagrees with the judge's. Eager, timed in turn with it, is the yardstick for what a busy machine adds
    to a round trip and to a copy of outputs; what the program answers while nothing is timed is none."""
    inner, round_trip = middle(program.inner), min(program.round_trip, eager.round_trip)
    slack = CLOCK_SHARE * inner + CLOCK_SLACK_NS
    off, usual = middle(program.within) - round_trip, max(middle(eager.within) - round_trip, 0.0)
    least = min(program.inner)
    if least < LEAST_NS or off > usual * BUSY + slack or -off > slack:
        counts = least if least < LEAST_NS else inner
        return f"the clock beside the program counts {counts / 1e6:.3f} ms a call, the judge's {off / 1e6:.3f} ms more (eager: {usual / 1e6:.3f} ms)"
    late, usual = middle(program.copied), middle(eager.copied)
    if late > usual * BUSY + slack + COPY_SLACK_NS:
        return f"fetching the program's outputs takes {late / 1e6:.3f} ms, eager's {usual / 1e6:.3f} ms: work goes on after the clock has stopped"
    early, usual = middle(program.ahead), middle(eager.ahead)
    if early > usual * BUSY + slack + AHEAD_SLACK_NS:
        return f"from its inputs to its start the program takes {early / 1e6:.3f} ms, eager {usual / 1e6:.3f} ms: work begins before the clock"
    return _moved_work(program, eager)


def _moved_work(program: Side, eager: Side) -> str:
    """Empty, or how much of what the program saves a call it needs outside of its interval by the judge's clock. The allowances above are made for a
    busy machine; a call shorter than they are could hide in them whole. All of a call is added up first, as work may hide in another place each time,
    and how unsteady the machine is eager tells alone."""
    inner = middle(program.inner)
    gain = middle(eager.inner) - inner
    if gain <= 0:
        return ""
    share, most = CLOCK_SHARE * inner, MOVED * gain + CLOCK_SLACK_NS
    saves = f"of {gain / 1e6:.3f} ms that the program saves a call"
    within = middle(program.within) - middle(eager.within) - share
    parts = {
        "begins before the clock": middle(program.ahead) - middle(eager.ahead),
        "goes on after the clock has stopped": middle(program.copied) - BUSY * middle(eager.copied),  # outputs may lie colder than eager's
        "is done of which the clock beside the program counts nothing": within,
    }
    moved = max(middle(program.outside()) - middle(eager.outside(BUSY)) - share, sum(max(part, 0.0) for part in parts.values()))
    if moved > most + SIDES * sum(_doubt(values) for values in (eager.ahead, eager.copied, eager.within)):
        return f"{saves}, {moved / 1e6:.3f} ms are spent outside the interval: work {max(parts, key=parts.__getitem__)}"
    unseen = unsteady(eager)
    if within > most + unseen:
        return f"{saves}, the judge's clock misses {within / 1e6:.3f} ms: the clock beside the program counts too little"
    if claims(program, eager) and unseen > gain:
        return f"{saves}, the judge's clock sees nothing: it is unsteady by {unseen / 1e6:.3f} ms"
    return ""


def claims(program: Side, eager: Side) -> bool:
    """Whether the program seems so much faster that the judge's clock must be steady enough to see it."""
    inner, usual = middle(program.inner), middle(eager.inner)
    return usual >= CLAIM * inner and usual - inner > 2 * CLOCK_SLACK_NS


def unsteady(eager: Side) -> float:
    """How far the judge's clock may be wrong about what a program saves. Nanoseconds."""
    return SIDES * _doubt(eager.within)


def _doubt(values: Sequence[float]) -> float:
    """Three standard errors of a median, by the median deviation."""
    at = statistics.median(values)
    root: float = max(len(values), 1) ** 0.5
    return 3 * 1.25 * 1.4826 * statistics.median(abs(value - at) for value in values) / root


def measure(
    sides: list[Side],
    draw: Callable[[int], tuple[Values, int]],
    check: Callable[[int, Side, Call], None],
    rng: random.Random,
    first: int,
    blocks: int,
) -> int:
    """Runs `blocks` ABBA blocks from input number `first`: a random order of the sides for one input, the reverse for the next. Every side sees
    every input once and in the same sequence, so that state moves on alike; all sides of a block call from the same processor, each block from the
    next. The programs' turns, which are watched, lie side by side: while the others are timed they stand still, and each change begins with the same
    pause (`idleness.pause`). `check` gets each call. Returns the next input's number."""
    device = sides[0].caller.party.device
    watches = list({id(watch): watch for side in sides for watch in side.caller.watches}.values())
    with ending(watches):
        watched, last = {id(watch.party) for watch in watches}, None
        for _ in range(blocks):
            for side in sides if device.timed_on else ():
                side.caller.processor = len(sides[0].blocks) % len(device.timed_on)
            order = in_turns(sides, watched, rng)
            block: dict[int, list[float]] = {id(side): [] for side in sides}
            device.sample_clocks()
            for turn in (order, order[::-1]):
                values, seed = draw(first)
                for side in turn:
                    if watches and (mine := id(side.caller.party) in watched) is not last:
                        pause(watches, looks=not mine)
                        last = mine
                    call = side.caller.call(values, seed)
                    block[id(side)].append(side.add(call))
                    check(first, side, call)
                    del call
                del values  # gigabytes, perhaps, for which the next draw has no room
                first += 1
            device.sample_clocks()
            for side in sides:
                side.blocks.append(block[id(side)])
    return first


def in_turns(sides: list[Side], watched: set[int], rng: random.Random) -> list[Side]:
    """A random order in which those whose parties are watched lie side by side, before or behind the others."""
    order = list(sides)
    rng.shuffle(order)
    return sorted(order, key=lambda side: id(side.caller.party) in watched, reverse=rng.random() < 0.5)


def median_ms(side: Side) -> float:
    return max(float(np.median(np.array(side.blocks), axis=0).mean()), 1e-9)

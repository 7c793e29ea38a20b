"""Times the program and baselines, interleaved in random ABBA blocks and each in its own process, and takes medians by both clocks."""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from verifier.timing.call import POISON, Call
from verifier.timing.idleness import Watch, ending, pause
from verifier.timing.outside import Charge, Laps
from verifier.timing.series import Form, Line, Use, Uses, changed, single

if TYPE_CHECKING:
    from verifier.integrity.sampling.glancing import Glancing

GIVEN_BACK_SECONDS = 5.0
HELD_EARLY, HELD_EARLY_BYTES = 3, 64 << 20  # number of first turns whose outputs the party holds until the end; maximum bytes of a call's outputs
HELD_LATER, HELD_LATER_BYTES = 6, 16 << 20  # later turns: turn n is held with probability HELD_LATER / n, which favours no time scale


@dataclass
class Early:
    """Outputs of an early timed call. They reveal a ring of output buffers: however long the ring is, it has wrapped around by the end."""

    specs: list[Spec]
    prints: list[Fingerprint]


@dataclass
class Caller:
    """Makes timed calls of one party, alternating between two locations for inputs and outputs."""

    party: Party
    expected: list[Spec]  # specs of the outputs, used to reserve memory for them
    limit: float
    slot: int = 0
    need: int = 0  # bytes of device memory that a program's process takes if it needs no more than PyTorch; zero: unknown
    backward: dict[str, Any] | None = None  # arguments of `gradients.forward_backward`; null: forward only
    layout: list[list[int] | None] = field(default_factory=list)  # strides that a program's outputs must have when the clock stops
    previous: list[Spec] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)  # for a baseline: watches on the programs
    processor: int | None = None  # one of the processors used for timing
    early: list[Early] = field(default_factory=list)  # timed calls whose outputs the party holds, by the party's call number
    turned: int = 0  # number of turns so far
    glancing: Glancing | None = None  # for a program on the CPU: inspects it during some of its timed calls

    def call(self, values: Values, rng: int, flush: bool = True, fresh_address: bool = True, reread: bool = False, hold: bool = False) -> Call:
        party, device = self.party, self.party.device
        self.slot = 1 - self.slot if fresh_address else self.slot
        offsets, half = place(self.expected)
        room = [spec.nbytes for spec in self.expected]
        need = EASE * (values.nbytes + half)
        later = large(half)  # the previous outputs are read by a separate request, from the location of this call's outputs
        device.trim(need)
        message = reserve(party, "in", values.specs, slots=2, slot=self.slot)
        memory = party.arena("out", 2 * half if reread and not later else half)
        memory.bytes.fill_(POISON)
        device.sync()
        again = [half + offset for offset in offsets] if reread and self.previous and not later else None
        handing = 0

        def hand_over() -> None:
            nonlocal handing
            self._waited()
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
            "hold": hold or (reread and not later),
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
        if fits and not (later and not party.has_program):  # a baseline's outputs stay in place until its next call
            where = where[:half].clone()
        outputs = views(where, specs, offsets) if fits else []
        before = None
        if fits and reread and self.previous:
            if later:
                device.sync()  # this call's outputs must be copied before the party overwrites them
                party.ask("again", {"slot": slot}, self.limit)
            at = offsets if later else [half + offset for offset in offsets]
            before = [kept(view(memory.bytes, spec, offset), copy=True) for spec, offset in zip(self.previous, at, strict=True)]
        self.previous = specs if fits and (reread or not later) else []
        arena = party.arenas["in"].bytes
        intact = [
            same_values(view(arena, spec, offset), tensor)
            for tensor, spec, offset in zip(values.tensors, values.specs, message["offsets"], strict=True)
        ]
        after = changed(arena, values.specs, message["offsets"], intact)
        device.sync()  # the copies above must be complete before the party is asked to write there
        ahead = handing + exchange.refreshed
        shared = [name for name in described.get("shared", []) if isinstance(name, str)]
        laid = described.get("laid") is True
        tree, queued = described.get("tree"), exchange.queued
        return Call(
            exchange.inner,
            exchange.wall,
            exchange.copied,
            ahead,
            tree,
            specs,
            outputs,
            before,
            intact,
            shared,
            laid,
            queued=queued,
            around=exchange.around,
            after=after,
        )

    def held(self, number: int, specs: list[Spec]) -> list[torch.Tensor] | None:
        """Returns the current outputs of an earlier call, by its number since the program was constructed; null if the party has none. They are in
        the memory to which its next call will write."""
        offsets, size = place(specs)
        memory = self.party.arena("out", size)
        slot = {"arena": "out", "offsets": offsets, "specs": [spec.model_dump(exclude_none=True) for spec in specs]}
        answer = self.party.ask("held", {"number": number, "slot": slot}, self.limit).message
        return views(memory.bytes, specs, offsets) if answer.get("copied") is True else None

    def turn(self, uses: list[Use], in_series: bool) -> list[Call]:
        """Makes the counted calls of these uses, in a series or one by one. The party holds the outputs of its first turns and of some later ones
        (`overwritten`)."""
        counted = [number for number, use in enumerate(uses) if use.counted]
        hold = secrets.choice(counted) if self._holds() else None
        if not in_series:
            return [self._noted(self.call(use.values, use.rng or 0, hold=hold is not None), hold is not None) for use in uses]
        if self.processor is not None:
            self.party.binding.stand_on(self.processor)
        self.previous = []  # its last result is in memory that the series overwrites
        try:
            glances = self.glancing.choose(counted) if self.glancing is not None else None
            calls = self._line().calls(uses, self._waited, hold, glances)
            if self.glancing is not None:
                self.glancing.add(calls, glances)
        except PartyFailure as failure:
            if failure.error_class == "OutOfMemoryError":
                self._short(failure)
            raise
        return [self._noted(call, number == hold) for number, call in enumerate(calls) if number in counted]

    def _holds(self) -> bool:
        """Decides whether the party holds outputs of the next turn. A program may begin to reuse its memory at any call, so later turns are chosen at
        random: about as many from the last half of the turns as from the second quarter."""
        self.turned += 1
        size = place(self.expected)[1]
        if not self.party.has_program or size > HELD_EARLY_BYTES:
            return False
        return self.turned <= HELD_EARLY or (size <= HELD_LATER_BYTES and secrets.randbelow(self.turned) < HELD_LATER)

    def _noted(self, call: Call, held: bool) -> Call:
        if held:
            self.early.append(Early(call.specs, [fingerprint(output) for output in call.outputs]))
        return call

    def overwritten(self, borrowed: Sequence[bool]) -> bool:
        """Returns whether an output of an early timed call has changed since. `borrowed` says, for each output, whether the task itself returns
        memory that later calls may write to. Outputs that the party no longer holds are ignored."""
        for number, early in enumerate(self.early):
            now = self.held(number, early.specs) if early.prints else None
            for at, (tensor, then) in enumerate(zip(now or [], early.prints, strict=False)):
                if fingerprint(tensor) != then and not (at < len(borrowed) and borrowed[at]):
                    return True
        return False

    def outlived(self, borrowed: Sequence[bool]) -> int:
        """Returns the number of held calls whose outputs the program keeps. This ends the comparison of early outputs, because the party drops
        them."""
        self.early, self.previous = [], []
        return int(self.party.ask("outlived", {"borrowed": list(borrowed)}, self.limit).integer("calls"))

    def empty(self, rounds: int) -> int:
        """Returns the duration, in nanoseconds, of an exchange without a call. If calls are timed in series, this is the exchange as in a user's
        loop; otherwise, it is a round trip."""
        if self.party.device.leader() is None:
            return self.party.empty(rounds)
        return int(statistics.median(stamped.judged for stamped in self._line().empty(rounds)))

    def _line(self) -> Line:
        return Line(self.party, self.expected, self.limit, self.backward)

    def _waited(self) -> None:
        """Measures the wait for the GPU before every side's turn. It makes the GPU switch to the judge's context, which counts towards the time
        ahead."""
        waited = self.party.device.wait_ns()
        for watch in self.watches:
            watch.waited(waited)

    def _short(self, failure: PartyFailure) -> None:
        """Determines the cause of a memory shortage. A program that runs out of memory is to blame if its process could have had as much memory as
        PyTorch's call needs. This is checked after the process has ended, so that nothing depends on what the program reports. Otherwise, the device
        is too small; for a baseline, this is always the cause."""
        party, device = self.party, self.party.device
        total = device.total_bytes()
        if party.has_program:
            party.end()
        free, deadline = device.free_bytes(), time.monotonic() + GIVEN_BACK_SECONDS
        while party.has_program and free is not None and free < self.need and time.monotonic() < deadline:
            time.sleep(0.1)  # the driver frees a killed process's memory shortly after its end
            free = device.free_bytes()
        if total is None or free is None or (party.has_program and free >= self.need):
            return
        failure.request = "memory"
        side = "a program as frugal as PyTorch" if party.has_program else "a baseline"
        failure.message = f"{too_little(device, 'for this task')}, and {side} needs {self.need / 2**30:.1f} GiB"


def kept(tensor: torch.Tensor, copy: bool = False) -> torch.Tensor | Fingerprint:
    """Returns what is kept of an output until the next call in order to detect changes. For gigabytes, this is a fingerprint instead of a second
    copy."""
    if large(tensor.nbytes):
        return fingerprint(tensor)
    return tensor.clone(memory_format=torch.preserve_format) if copy else tensor


@dataclass
class Side:
    """The program, or a baseline, with its samples in milliseconds, one list per block. A sample is one call, or the median of the counted calls in a
    series."""

    name: Baseline | Rival | None
    caller: Caller
    blocks: list[list[float]] = field(default_factory=list)
    laps: Laps = field(default_factory=Laps)
    round_trip: int = 0  # ns
    charged: Charge = Charge()

    def samples(self) -> np.ndarray:
        """Returns milliseconds, including charges, as an array (blocks, calls of a block)."""
        return np.array(self.blocks) + self.charged.ns / 1e6

    def calibrate(self, rounds: int = 9) -> None:
        """Measures the cost of an empty exchange before and after the blocks. The shorter time counts, since the machine may be busy during one of
        them."""
        found = self.caller.empty(rounds)
        self.round_trip = min(self.round_trip or found, found)

    def add(self, calls: list[Call]) -> float:
        """Adds the counted calls of one turn, except for inspected calls, calls with warm caches and (unless all calls were preempted) preempted
        calls. Returns the turn's time in milliseconds."""
        laps = self.laps
        laps.counted = len(calls)
        warm = [call for call in calls if call.warm and not call.looked and not call.preempted]
        whole = [call for call in calls if not call.warm and not call.preempted]
        calls = [call for call in calls if not call.looked and not call.warm] or calls
        timed, calm = calls, [call for call in calls if not call.preempted]
        laps.made, laps.preempted = laps.made + len(calls), laps.preempted + len(calls) - len(calm)
        calls = calm or calls
        for name in ("inner", "wall", "ahead", "copied", "around", *(("between", "lead") if calls[0].in_series else ())):
            getattr(laps, name).append(int(statistics.median(getattr(call, name) for call in calls)))
        whole_ns = [call.inner + call.between + call.copied for call in timed]  # what only some calls do may also be outside their interval
        laps.level(whole_ns, [ns for ns, call in zip(whole_ns, timed, strict=True) if not call.preempted])
        if warm and calm:
            laps.early += [call.inner - laps.inner[-1] for call in warm]
        remembered = next((found for some in (calls, whole) if (found := newer(some)) is not None), None)
        if remembered is not None:
            laps.remembered.append(remembered)
        return laps.inner[-1] / 1e6


def newer(calls: list[Call]) -> int | None:
    """Returns how many ns longer a call takes with newly drawn inputs than with others; null if all calls are of one kind."""
    new, known = ([call.inner for call in calls if call.use is not None and call.use.new is kind] for kind in (True, False))
    return int(statistics.median(new) - statistics.median(known)) if new and known else None


def measure(
    sides: list[Side],
    draw: Callable[[int], tuple[Values, int]],
    check: Callable[[int, Side, Call], None],
    rng: random.Random,
    first: int,
    blocks: int,
    form: Form | None = None,
) -> int:
    """Runs `blocks` ABBA blocks, starting with input number `first`: one turn with the sides in random order, and one with the order reversed. A turn
    is one call of each side, or a series of the given form. Every side processes every input once and in the same sequence, including lead-ins, so
    that state advances in the same way. All sides of a block run on the same processor, and those of the next block run on the next processor. The
    programs' turns, which are watched, are adjacent. The programs are frozen while the others are timed, and each change between the two groups
    begins with the same pause (`idleness.pause`). `check` receives each counted call. Returns the next input's number."""
    device = sides[0].caller.party.device
    watches = list({id(watch): watch for side in sides for watch in side.caller.watches}.values())
    uses = Uses(draw, random.Random(rng.getrandbits(64)), form) if form is not None else None
    with ending(watches):
        watched, last = {id(watch.party) for watch in watches}, None
        for _ in range(blocks):
            for side in sides if device.stands_on else ():
                side.caller.processor = len(sides[0].blocks) % len(device.stands_on)
            order = in_turns(sides, watched, rng)
            block: dict[int, list[float]] = {id(side): [] for side in sides}
            device.sample_clocks()
            for turn in (order, order[::-1]):
                given = uses.next(first) if uses is not None else single(draw, first)
                counted = sum(use.counted for use in given)
                for side in turn:
                    if watches and (mine := id(side.caller.party) in watched) is not last:
                        pause(watches, looks=not mine)
                        last = mine
                    calls = side.caller.turn(given, in_series=uses is not None)
                    block[id(side)].append(side.add(calls))
                    for number, call in enumerate(calls, first):
                        check(number, side, call)
                    del calls
                    if uses is None:
                        call = None  # type: ignore[assignment]  # gigabytes, perhaps, for which the next call has no room
                del given  # as above: the next draw may not fit either
                first += counted
            device.sample_clocks()
            for side in sides:
                side.blocks.append(block[id(side)])
    return first


def in_turns(sides: list[Side], watched: set[int], rng: random.Random) -> list[Side]:
    """Returns a random order in which the watched sides are adjacent, before or after the others."""
    order = list(sides)
    rng.shuffle(order)
    return sorted(order, key=lambda side: id(side.caller.party) in watched, reverse=rng.random() < 0.5)


def median_ms(side: Side) -> float:
    return max(float(np.median(np.array(side.blocks), axis=0).mean()), 1e-9)

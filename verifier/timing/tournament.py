"""The tournament of the `timing` stage.

It starts the baselines, warms up all sides, runs blocks until the interval is narrow enough, and checks every call.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from verifier.correctness.calling import Subject
from verifier.correctness.moved_state import STATE_NORM, StateOff, state_off
from verifier.integrity.sampling.glancing import Glancing
from verifier.integrity.timed_process import Check, TimedProcess
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values
from verifier.report import CLOCK, Timing, Trial
from verifier.timing.blocks import Side, measure, median_ms
from verifier.timing.intervals import Estimate
from verifier.timing.judges_clock import clocks
from verifier.timing.outside import PARTS, busy, disturbed
from verifier.timing.pairs import Pair, compare, estimate_of, useless
from verifier.timing.processes import PAIRS, Processes, Round
from verifier.timing.series import Form, form
from verifier.timing.timed_outputs import TimedOutputs

MORE_PAIRS = {"quick": 0, "full": 3}  # pairs added once, if half the interval's width exceeds `WIDE`, relative to the ratio
WIDE = {"cuda": 0.015, "cpu": 0.05}  # higher on the CPU, where all other work disturbs a program and its processes take minutes
HOPELESS = 0.2  # half width above which the cause is other work on the host, which would also disturb further processes
MIN_BLOCKS = {"quick": 8, "full": 8}  # per pair
MAX_BLOCKS = {"quick": 200, "full": 200}
FEW_BLOCKS = 6  # for calls so slow that more would take minutes; also the step after the minimum
LEAST_ERROR = {"quick": 0.005, "full": 0.0025}  # relative standard error due to calls below which no more calls are needed
SHARE = {"quick": 1.5, "full": 0.5}  # same, as a share of the error due to processes, which calls do not reduce
COARSE = 0.03  # half width above which up to `EXTRA` budgets are spent on more calls
EXTRA = 1.5
STUBBORN = 6.0  # budgets spent on more calls while the interval gives no verdict at all, which takes less time than starting over
WARM_UP = 3
MOST_WARM_UP = {"quick": 5, "full": 10}
WARM_UP_SECONDS = 0.3
GONE = 1.0  # seconds within which the device becomes idle after a program's processes are gone
STATE = "state after the timed calls"  # name of the trial that compares the state
SOUND = 1.1  # multiple of eager's time up to which a compiled baseline is good enough for a repeat


@dataclass
class Tournament(Processes):
    """Runs the tournament of a tier. The quick tier measures the runner used in the trials against one eager process, which is kept for the next
    program of the same task. The full tier measures several fresh pairs of processes."""

    waiting: float = 0.0  # seconds during which other judges of the device measured, including repeats
    measuring: float = 0.0  # seconds with exclusive use of the device, including repeats
    wide: str = ""
    burning: str = ""  # how the program kept the machine busy while others were timed
    crowded: str = ""  # how another process kept it busy
    _warm: dict[int, int] = field(default_factory=dict)  # ns of each side's last warm-up call
    disturbed: str = ""  # how other work on the host disturbed the baselines, in which case nothing is the program's fault
    busy: str = ""  # why a program that seems faster is not called faster on this host
    form: Form | None = None  # form of the last round's series; null: calls were timed one by one
    timed: TimedProcess | None = None  # the program's process in the last pairs, which determines its class
    inspect: Callable[[Party], Glancing | None] | None = None  # how that process is inspected while it is timed

    def run(self, subject: Subject) -> tuple[Timing, str]:
        """Returns the timing, and a description of how the clocks disagree, if they do. Wrong outputs are recorded in `outputs`. Raises
        `PartyFailure` if any party fails, except that if a baseline other than eager fails in a timed call, everything is measured again without
        it."""
        while True:
            try:
                return self._run(subject)
            except PartyFailure as failure:
                if failure.request == "memory" or failure.whose not in self._others():
                    raise
                self.given_up.add(failure.whose)
                self.reasons[failure.whose] = f"{failure.whose}: it failed while it was timed: {failure.message.partition(chr(10))[0]}"
                self._tell(f"{failure.whose} failed while it was timed: measured again without it")

    def _run(self, subject: Subject) -> tuple[Timing, str]:
        self.pool.reap()
        self.outputs, self.wide, self.burning, self.crowded = TimedOutputs(self.trials, self.rival is not None), "", "", ""
        rng = random.Random(self.trials.draws.getrandbits(64))
        self._close_but(self.prepared)
        self.trials.make_room()
        count = PAIRS[self.job.tier]
        pairs: list[Pair] = []
        for number, round_ in enumerate(self._plan(pairs)):
            self._close_but(self.prepared)
            try:
                these = self._round(number, round_, subject, pairs, rng)
            except PartyFailure as failure:
                if not round_.further or failure.whose == "program":
                    raise
                self._tell(f"no further processes: {failure.whose} failed: {failure.message.partition(chr(10))[0]}")
                break  # the earlier measurements are complete
            pairs += these
            if self.outputs.failed:
                self.prepared = {}
                break
            if not number:  # a partial set of pairs is not worth the memory that it takes
                self.prepared = self._sound(pairs) if len(these) == count else {}
        return self._result(pairs)

    def _round(self, number: int, round_: Round, subject: Subject, before: list[Pair], rng: random.Random) -> list[Pair]:
        frozen = self.pool.gate.frozen_seconds()
        these = self._bring_up(round_, subject)
        # They also warm up on the processors used for timing. Stopping idle compilers takes a second, during which other judges may measure.
        self.pool.at_once([partial(side.caller.party.rest, anew=True) for pair in these for side in pair.sides])
        self.pool.settle()
        for pair in these:
            pair.round = number
        self.timed = TimedProcess(these[0].program)
        self.timed.caller.glancing = self.inspect(self.timed.caller.party) if self.inspect is not None else None
        self.waiting += self.pool.gate.frozen_seconds() - frozen
        self._alone(these, before, rng, share=len(round_.members) / PAIRS[self.job.tier])
        return these

    def _plan(self, pairs: list[Pair]) -> Iterator[Round]:
        """Plans the rounds. When the last of the other baselines are in `pairs` and the interval is still wide, wherever it lies, further pairs are
        added, but only once. By then, the interval is wide because of the variation between processes, not between calls (or because the host is
        busy, in which case further pairs do not help)."""
        more = MORE_PAIRS[self.job.tier]
        rounds = self._rounds(PAIRS[self.job.tier], len(self._others()) - len(self.prepared) - sum(one.calls for one in self.ahead.values()))
        if len(rounds) > 1:
            self._end_ahead(only_called=True)  # later rounds would keep memory from the first one
        planned = list(zip(rounds, self._spread(len(rounds)), strict=True))
        # If one pair fills the memory, only a few fresh processes are in stock at first. If there are no further pairs, the next job takes these
        # processes, but a judge for a single job has no next job.
        last = self._takes(self._rounds(more, 0)[0], []) if more and len(rounds) > 1 and self.pool.spares else 0
        for round_, later in zip(planned, [*planned[1:], None], strict=True):
            yield Round(*round_, after=self._takes(*later) if later is not None else last)
        half = self._estimate(pairs).half if more else 0.0
        if WIDE[self.pool.device.kind] < half < HOPELESS:
            self._tell(f"the interval is {half:.1%} wide on either side: {more} more fresh processes of program and eager")
            self._close_but(self.prepared)  # further pairs take over the memory of the other baselines
            rounds = self._rounds(more, 0)
            for members, following in zip(rounds, [*rounds[1:], range(0)], strict=True):
                yield Round(members, [], further=True, after=self._takes(following, []))

    def _estimate(self, pairs: list[Pair]) -> Estimate:
        return estimate_of(pairs, "eager" if self.rival is None else "rival", self.known, self.seed)

    def _alone(self, these: list[Pair], before: list[Pair], rng: random.Random, share: float) -> None:
        asked = began = ended = time.monotonic()
        try:
            with self.pool.gate.alone():
                began = time.monotonic()
                try:
                    self._measure(these, before, rng, share)
                    self._look_for_others(these)
                finally:
                    ended = time.monotonic()
                    self.measuring += ended - began
        finally:
            self.waiting += (began - asked) + (time.monotonic() - ended)

    def _look_for_others(self, pairs: list[Pair]) -> None:
        """Examines a device that was busy while the programs should have been idle. If it is still busy once their processes are gone, the work
        belongs to another process, such as a kernel that another judge's process had started before it was frozen."""
        suspects = [pair for pair in pairs if pair.watch.long_wait()]
        for pair in suspects:
            self.pool.give_back(pair.program.caller.party)
        works_on = bool(suspects) and not self.pool.gate.rests(GONE)
        for pair in suspects:
            pair.watch.works_on = works_on

    def _sound(self, pairs: list[Pair]) -> dict[str, Side]:
        """Returns the baselines that need not be recompiled when a measurement is repeated because of the program or a busy machine. A baseline that
        is slower than eager may have been tuned while the machine was busy, so it is compiled again."""
        first = pairs[0]
        most = SOUND * median_ms(first.baselines[0])
        return {str(side.name): side for side in first.baselines[1:] if side.name != "rival" and side.blocks and median_ms(side) <= most}

    def _measure(self, these: list[Pair], before: list[Pair], rng: random.Random, share: float) -> None:
        """Runs blocks over all sides of these pairs until more calls would not narrow the interval, or the budget is spent."""
        tier, limits = self.job.tier, self.trials.limits
        sides = [side for pair in these for side in pair.sides]
        known = len(before) + len(these)
        self._tell(f"{len(sides)} processes in turn, {known} of {max(known, PAIRS[tier])} pairs of program and eager")
        turns = self.pool.gate.turns
        first = self._warm_up(these)
        turns.mark("warm")
        for side in sides:
            side.caller.party.rest()  # compilers started by a first call
            side.calibrate()
        for pair in these:
            for baseline in pair.baselines:
                baseline.caller.watches = [other.watch for other in these]
        budget = share * (limits.quick_timing if tier == "quick" else limits.full_timing)
        check = self._noting(self.outputs.of(these))
        turns.mark("ready")
        begin = time.monotonic()
        self.form = shape = self._form(sides)
        first = measure(sides, self._draw, check, rng, first, 2, shape)
        a_block = (time.monotonic() - begin) / 2
        least = MIN_BLOCKS[tier]
        if least * a_block > 3 * budget:
            least = max(FEW_BLOCKS, int(3 * budget / a_block))
        first = measure(sides, self._draw, check, rng, first, least - 2, shape)
        while not self.outputs.failed and len(these[0].program.blocks) < MAX_BLOCKS[tier]:
            found = self._estimate(before + these)
            spent = time.monotonic() - begin
            enough = max(LEAST_ERROR[tier], SHARE[tier] * found.between)
            dim = any(pair.claim_unseen() for pair in these) or self._unseen(shape)
            patience = STUBBORN if dim or useless(found.interval) else EXTRA if found.half > COARSE else 1
            if (found.within <= enough and not dim) or spent > budget * patience:
                break
            first = measure(sides, self._draw, check, rng, first, FEW_BLOCKS, shape)
        turns.mark("timed", sides=len(sides), draws=first, blocks=len(sides[0].blocks), ms=sum(median_ms(side) for side in sides))
        for side in sides if not self.outputs.failed else []:
            side.calibrate()
        for pair in these:
            off = StateOff() if self.outputs.failed else state_off(pair.program.caller.party, pair.baselines[0].caller.party, self.trials)
            if off.detail:
                times = f"; its timed calls took {median_ms(pair.program):.3g} ms, eager's {median_ms(pair.baselines[0]):.3g} ms"
                trial = Trial(name=STATE, seed=0, ok=False, detail=off.detail + times, compared=off.compared, wrong=off.wrong)
                self.outputs.failed = [trial]
            elif off.nearest is not None:
                name, error, bound = off.nearest
                self.outputs.checked.append(Trial(name=STATE, seed=0, ok=True, output=name, error=error, bound=bound, norm=STATE_NORM))

    def _unseen(self, shape: Form | None) -> bool:
        """Returns whether it is still unclear whose code the timed calls run."""
        glancing = self.timed.caller.glancing if self.timed is not None else None
        return shape is not None and glancing is not None and glancing.wants_more

    def _result(self, pairs: list[Pair]) -> tuple[Timing, str]:
        for pair in pairs:
            pair.charge()
        named = dict.fromkeys(side.name for pair in pairs for side in pair.baselines)
        names = [name for name in ["eager", *self._others()] if name in named]
        comparisons = [compare(pairs, name, self.known, self.seed) for name in names]
        speedup = comparisons[0].speedup
        if useless(speedup):
            self.wide = f"the interval of the speedup, {speedup.low:.2f} to {speedup.high:.2f}, is too wide to say anything: the machine is too busy"
        of_pairs = [(pair.program, pair.baselines[0]) for pair in pairs]
        self.busy = busy(of_pairs, speedup.ratio, self.trials.limits.preempted) if speedup.low > 1 else ""
        self.disturbed = disturbed([side for pair in pairs for side in pair.baselines], self.trials.limits.preempted)
        judged, problem = clocks(pairs, self.known, self.seed)
        self.burning = next(filter(None, (pair.watch.finding() for pair in pairs)), "")
        self.crowded = next(filter(None, (pair.watch.crowded() for pair in pairs)), "")
        charges = [pair.program.charged.ns for pair in pairs]
        timing = Timing(
            program_ms=comparisons[0].program_ms,
            bounded=comparisons[0].program_ms < 1,
            clock_agrees=not problem,
            clock=CLOCK,
            lead_in=self.form.lead if self.form else None,
            counted=self.form.counted if self.form else None,
            round_trip_ms=pairs[0].program.round_trip / 1e6,
            charged_ms=sum(charges) / len(charges) / 1e6,
            preempted=sum(side.laps.preempted for pair in pairs for side in pair.sides)
            / max(sum(side.laps.made for pair in pairs for side in pair.sides), 1),
            charged_for=next((PARTS[pair.program.charged.part] for pair in pairs if pair.program.charged.ns), ""),
            by_judge=judged,
            comparisons=comparisons,
            rival=compare(pairs, "rival", self.known, self.seed) if self.rival is not None else None,
            throttled=self.pool.device.throttled(),
            pairs=len(pairs),
            preparing=self.preparing,
            waiting=round(self.waiting, 2),
            measuring=round(self.measuring, 2),
            repeatability=f"{self.known.source}: {self.known.spread(0.0):.2%} and {self.known.noise:.2f} of the variation from call to call",
        )
        return timing, problem

    def _form(self, sides: list[Side]) -> Form | None:
        """Chooses the form of series from the warm-up calls, the last of which are warm."""
        if self.pool.device.leader() is None:
            return None
        shortest, longest = min(self._warm.values()), max(self._warm.values())
        warms = self.pool.device.kind == "cpu"  # the time of a call without a preceding flush has not been measured on a GPU
        memory = self.pool.device.total_bytes()
        return form(self.trials.ledger().exchanged, shortest / 1e6, longest / 1e6, memory, self.trials.stochastic, warms)

    def _warm_up(self, pairs: list[Pair]) -> int:
        """Makes the same calls on every side, in the same sequence, until enough time has passed. These calls are also checked."""
        check = self._noting(self.outputs.of(pairs))
        begin = time.monotonic()
        number, self._warm = 0, {}
        while number < WARM_UP or (number < MOST_WARM_UP[self.job.tier] and time.monotonic() - begin < WARM_UP_SECONDS * len(pairs)):
            values, seed = self._draw(number)
            for pair in pairs:
                for side in pair.sides:
                    call = side.caller.call(values, seed)
                    self._warm[id(side)] = call.inner
                    check(number, side, call)
                    del call
            del values  # the inputs may take up gigabytes, in which case the next draw may not fit
            number += 1
        return number

    def _draw(self, number: int) -> tuple[Values, int]:
        seed = self.trials.draws.getrandbits(32)
        values = self.trials.reference.inputs(seed)
        if self.timed is not None:
            self.timed.drawn(number, seed)
        return values, seed

    def _noting(self, check: Check) -> Check:
        return check if self.timed is None else self.timed.noting(check)

    def release(self) -> None:
        """Terminates everything that was timed, except for the program's process, which is still to be inspected."""
        party = self.timed.caller.party if self.timed is not None else None
        stays = [one for one in self.parties if one is party]
        self.parties = [one for one in self.parties if one is not party]
        self.close()
        self.parties = stays

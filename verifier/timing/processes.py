"""The processes that are timed in turn: the program's, eager's and the other baselines', as many at a time as fit into the device's memory."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials
from verifier.jobs import VerifyJob
from verifier.judge.ahead import Ahead
from verifier.judge.asking import Party
from verifier.judge.first_calls import FirstCalls
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool, Role
from verifier.judge.session import load_baseline, set_state
from verifier.layout import place
from verifier.report import STAND_INS, Baseline
from verifier.timing.blocks import Caller, Side
from verifier.timing.idleness import Watch
from verifier.timing.intervals import Repeatability
from verifier.timing.pairs import Pair, shuffled
from verifier.timing.series import series_bytes

PAIRS = {"quick": 1, "full": 3}  # fresh processes of the program, and the same number of eager processes
TRITON = "triton"  # marks the source of a program whose kernels are compiled at their first call
COSTLY = 60.0  # if a baseline fails after more than this many seconds, it is not tried again when the program is measured once more
_RUNNER: list[Role] = ["runner"]
_BASELINE: list[Role] = ["baseline"]


@dataclass(frozen=True)
class Round:
    """Pairs that are measured together, and the baselines other than eager measured with them."""

    members: range
    others: list[Baseline]
    further: bool = False  # whether the earlier measurements are complete without these pairs
    after: int = 0  # number of processes that the next round will need


@dataclass
class Processes:
    """The processes of one measurement. `enlist` imports and constructs the program in a fresh runner."""

    pool: Pool
    trials: Trials
    job: VerifyJob
    seed: int
    enlist: Callable[[Party], Subject]
    known: Repeatability
    others: list[Baseline] | None = None  # baselines other than eager, in the full tier; null: all that the device has
    rival: Callable[[Party], Subject] | None = None  # enlists the job's other program, in one process per pair
    progress: Callable[[str], None] = lambda text: None
    parties: list[Party] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    preparing: dict[str, float] = field(default_factory=dict)  # seconds until a baseline other than eager could be timed: mostly compilation
    prepared: dict[str, Side] = field(default_factory=dict)  # baselines other than eager for a repeat; their parties are in `parties`
    ahead: dict[str, Ahead] = field(default_factory=dict)  # baselines that are already compiling
    given_up: set[str] = field(default_factory=set)  # other baselines that took too long or failed in a timed call; not retried
    _telling: threading.Lock = field(default_factory=threading.Lock)  # baselines start in parallel

    def __post_init__(self) -> None:
        name: Baseline = "compile-max-autotune"
        if name in self._others() and self.trials.limits.autotune <= 0:
            self.given_up.add(name)
            self.reasons[name] = f"{name}: this verifier's limits leave its search no time"

    def begin_ahead(self) -> None:
        """Starts the longest work while the program is built and tried.

        If everything that is timed in turn fits into the device's memory, and the first inputs are available without the reference, which serves
        others in the meantime, then all processes take their roles. Compiled baselines then make their first calls, which compiles them. Otherwise,
        the processes of the first round import torch, and compiled baselines import the compiler. The autotuning of max-autotune times kernels, which
        the trials would disturb. It therefore starts in advance only if the host's work continues while other judges measure, because it is disturbed
        in that case anyway."""
        others = self._others()
        if not self.pool.device.begins_ahead:
            return
        rounds = self._rounds(PAIRS[self.job.tier], len(others))
        roomy = self.trials.keeps_inputs and len(rounds) == 1
        terms: tuple[Role, str, str] = ("baseline", self.job.precision, self.job.mode)
        for name in others:
            if name.startswith("compile"):
                calls = roomy and (self.pool.host_goes_on or name not in STAND_INS)
                self.ahead[name] = Ahead(self.pool, terms, partial(self._first_call if calls else self._importing, name), calls)
        if roomy:
            taken = [*_RUNNER, *_BASELINE] * len(rounds[0]) + _BASELINE * (len(others) - len(self.ahead))
            random.Random(self.trials.draws.getrandbits(64)).shuffle(taken)  # random, as in `_bring_up`
            self.pool.anticipate([(role, self.job.precision, self.job.mode) for role in taken])
        else:
            self.pool.stock(self._takes(rounds[0], self._spread(len(rounds))[0]))

    def _takes(self, members: range, others: list[Baseline]) -> int:
        """Returns how many fresh processes a round needs."""
        own = len(members) * (2 if self.rival is None else 3)
        return own + sum(name not in self.prepared and name not in self.ahead for name in others)

    def _rounds(self, count: int, beside: int) -> list[range]:
        """Returns ranges of pairs that are measured together: all pairs, if they and `beside` further processes fit into the device's memory at the
        same time."""
        room = self.pool.device.free_bytes()
        # Each process has its own tensors (PyTorch's may be more than the program's), and arenas, of which the judge keeps copies.
        outputs = place(self.trials.expected_specs)[1]
        device = self.pool.device
        series = series_bytes(self.trials.input_bytes + outputs, device.total_bytes()) if device.leader() is not None else 0
        arenas = 3 * self.trials.input_bytes + 2 * outputs + series
        ledger = self.trials.ledger()
        need = max(self.trials.peak_bytes() or 0, ledger.state + ledger.eager) + arenas + self.pool.device.process_bytes
        if room is None or need <= 0:
            return [range(count)]
        processes = int(0.7 * room / need) - beside
        at_once = max(1, min(count, processes // (2 if self.rival is None else 3)))
        return [range(first, min(first + at_once, count)) for first in range(0, count, at_once)]

    def close(self) -> None:
        self._end_ahead()
        self._close_but({})

    def _end_ahead(self, only_called: bool = False) -> None:
        for name in [name for name, one in self.ahead.items() if one.calls or not only_called]:
            self.ahead.pop(name).end()

    def _close_but(self, prepared: dict[str, Side]) -> None:
        self.prepared = {name: side for name, side in prepared.items() if side.caller.party.alive}
        kept = [side.caller.party for side in self.prepared.values()]
        for party in self.parties:
            if party not in kept:
                self.pool.give_back(party)
        self.parties = kept

    def _bring_up(self, round_: Round, subject: Subject) -> list[Pair]:
        """Concurrently starts everything that this round needs. Raises `PartyFailure` if the program or eager fails; any other baseline that fails is
        named in `reasons`."""
        members, others = round_.members, round_.others
        quick = self.job.tier == "quick"
        rivals = len(members) if self.rival is not None else 0
        kept = self.trials.reference.eager_party if quick else None
        own = 0 if quick else len(members)
        again = [self.prepared[name] for name in others if name in self.prepared]
        others = [name for name in others if name not in self.prepared]
        begun = {name: self.ahead.pop(name) for name in others if name in self.ahead}
        count = len(members) - (kept is not None) + len(others) - len(begun)
        roles = _RUNNER * (own + rivals) + _BASELINE * count
        terms = [(role, self.job.precision, self.job.mode) for role in roles]
        parties = shuffled(self.pool.take_all, terms, self.trials.draws.getrandbits(64))
        self.pool.stock(round_.after)
        runners = [party for party, role in zip(parties, roles, strict=True) if role == "runner"]
        eagers = [party for party, role in zip(parties, roles, strict=True) if role == "baseline"]
        if quick:
            eagers = [kept, *eagers] if kept is not None else eagers
            self.trials.reference.eager_party = eagers[0]
        self.parties += [party for party in parties if party is not self.trials.reference.eager_party]
        self.parties += [one.party for one in begun.values()]
        work: list[Callable[[], Side | None]] = [partial(self._program, runner) for runner in runners[:own]]
        work += [partial(self._baseline, "eager", party) for party in eagers[: len(members)]]
        fresh = iter(eagers[len(members) :])
        work += [partial(self._other, name, begun[name].party if name in begun else next(fresh), begun.get(name)) for name in others]
        work += [partial(self._again, side) for side in again]
        work += [partial(self._rival, runner, self._first_calls_of_rival) for runner in runners[own:]]
        sides = self.pool.at_once(work)
        for at, name in enumerate(others, own + len(members)):
            if sides[at] is None and name in STAND_INS:
                sides[at] = self._stand_in(name)
        if quick:
            sides.insert(0, Side(None, self._constructed(subject, self.job.program_source, self.trials.first_calls, stay=True)))
        opponents = [side for side in sides[len(sides) - rivals :] if side is not None]
        sides = sides[: len(sides) - rivals]
        programs, baselines = sides[: len(members)], sides[len(members) : 2 * len(members)]
        pairs = []
        for index, (program, eager) in enumerate(zip(programs, baselines, strict=True)):
            assert program is not None and eager is not None
            more = [side for side in sides[2 * len(members) :] if side is not None] if index == 0 else []
            more += opponents[index : index + 1]
            pairs.append(Pair(program, [eager, *more], Watch(program.caller.party)))
        return pairs

    def _others(self) -> list[Baseline]:
        if self.job.tier == "quick" or self.rival is not None:
            return []
        all_of_them: list[Baseline] = ["compile", "compile-max-autotune", "cuda-graph"] if self.pool.device.kind == "cuda" else ["compile"]
        wanted = [STAND_INS.get(name, name) if name in self.given_up else name for name in (all_of_them if self.others is None else self.others)]
        return [name for name in wanted if name not in self.given_up]

    def _spread(self, rounds: int) -> list[list[Baseline]]:
        """Returns the baselines other than eager for each round: all of them in the first round, or spread evenly if each round has only one pair."""
        others = self._others()
        return [others[at::rounds] for at in range(rounds)] if rounds == PAIRS[self.job.tier] else [others, *[[]] * (rounds - 1)]

    def _program(self, runner: Party) -> Side:
        return Side(None, self._constructed(self.enlist(runner), self.job.program_source, self.trials.first_calls))

    def _constructed(self, subject: Subject, source: str, first_calls: FirstCalls, stay: bool = False) -> Caller:
        """Makes a first call, in which Triton compiles its kernels, or torch.compile the program. This takes a second or a minute in each process, so
        it is done here, where all processes start in parallel and other judges may measure in the meantime, rather than in the warm-up. The program
        is then constructed again, so that its state is fresh. Triton and torch.compile find their code again: torch.compile keeps it with the code
        object of the function, and its conditions hold for every object with the same classes."""
        for last in (False, True) if TRITON in source or first_calls.compiles else (True,):
            self.trials.reconstruct(subject, stay)
            assert subject.caller is not None
            if not last:
                with self.pool.gate.idle(), first_calls.longer(subject.caller):
                    self.trials.first_call(subject.caller)
        assert subject.caller is not None, "the last round of the loop constructs it"
        return subject.caller

    @cached_property
    def _first_calls_of_rival(self) -> FirstCalls:
        return FirstCalls(self.pool, self.job.rival_source or "")

    def _rival(self, runner: Party, first_calls: FirstCalls) -> Side:
        """Enlists the other program in a fresh process. A failure in that process says nothing about the measured program."""
        assert self.rival is not None
        runner.side = "rival"
        return Side("rival", self._constructed(self.rival(runner), self.job.rival_source or "", first_calls))

    def _other(self, name: Baseline, party: Party, ahead: Ahead | None = None) -> Side | None:
        """Returns a baseline other than eager. `ahead` is the work that has already started for it."""
        if ahead is not None:
            ahead.wait()
        begin = time.monotonic() - (ahead.seconds if ahead is not None else 0.0)
        side = None
        try:
            side = self._baseline(name, party) if ahead is None else self._confirmed(ahead.side())
        except PartyFailure as failure:
            self.reasons[name] = f"{name}: {failure.message.splitlines()[0] if failure.message else failure.kind}"
            if name in STAND_INS or failure.kind == "timed_out" or time.monotonic() - begin > COSTLY:
                self.given_up.add(name)
        self.preparing[name] = round(time.monotonic() - begin, 1)
        self._tell(f"{name} {'is ready' if side is not None else 'failed'} after {self.preparing[name]:.0f} s")
        if side is None and name in STAND_INS:
            self.pool.dismiss(party)  # its stand-in gets its memory
        return side

    def _stand_in(self, name: Baseline) -> Side | None:
        """Returns the side that is measured in place of an unavailable baseline. Do not call it from a thread of `at_once`, because the new process
        would end with that thread."""
        self.pool.reap()
        try:
            party = self.pool.take("baseline", self.job.precision, self.job.mode)
        except PartyFailure as failure:
            self.reasons[STAND_INS[name]] = f"{STAND_INS[name]}: {failure.message.partition(chr(10))[0]}"
            return None
        self.parties.append(party)
        return self._other(STAND_INS[name], party)

    def _again(self, side: Side) -> Side | None:
        """Restores a baseline to its state before the first of its timed calls."""
        side.caller.processor = None  # it warms up as the others do
        side.caller.party.binding.spread(True)
        try:
            self._set_state(side.caller.party)
        except PartyFailure as failure:
            self.reasons[str(side.name)] = f"{side.name}: {failure.message.splitlines()[0] if failure.message else failure.kind}"
            return None
        return Side(side.name, side.caller)

    def _tell(self, text: str) -> None:
        with self._telling:
            self.progress(text)

    def _baseline(self, name: Baseline, party: Party) -> Side:
        side = self._loaded(name, party)
        return side if name == "eager" else self._confirmed(self._compiling(side))

    def _loaded(self, name: Baseline, party: Party) -> Side:
        trials, reference = self.trials, self.trials.reference
        party.side = name
        try:
            if party.loaded != (reference.source, trials.weight_seed):
                load_baseline(party, reference.source, trials.weight_seed, trials.limits)
            party.loaded = None  # used only once: afterwards the model is no longer fresh
            self._set_state(party)
        except PartyFailure as failure:
            failure.request, failure.message = "start", f"the {name} baseline failed: {failure.message}"
            raise
        return Side(name, Caller(party, trials.expected_specs, trials.limits.call, backward=reference.backward, need=trials.ledger().program()))

    def _compiling(self, side: Side) -> Side:
        """Makes the first call, which compiles the model."""
        limits, party = self.trials.limits, side.caller.party
        party.binding.spread(True)
        party.ask("compile", {"baseline": str(side.name), "backward": self.trials.reference.backward}, limits.call)
        side.caller.limit = limits.autotune if side.name in STAND_INS else limits.compile_baseline
        return side

    def _importing(self, name: Baseline, party: Party) -> Side:
        return self._compiling(self._loaded(name, party))

    def _first_call(self, name: Baseline, party: Party) -> Side:
        """Makes the first call in advance, when its correctness cannot yet be checked."""
        side = self._importing(name, party)
        with self.pool.gate.idle():
            self.trials.first_call(side.caller)
        self._set_state(party)
        return side

    def _confirmed(self, side: Side) -> Side:
        with self.pool.gate.idle():
            off = self.trials.baseline_off(side.caller)  # the state that this call changes is restored
        if off:
            raise PartyFailure("raised", f"it is wrong, so it is no baseline: {off}", request="compile")
        side.caller.limit = self.trials.limits.call
        self._set_state(side.caller.party)
        return side

    def _set_state(self, party: Party) -> None:
        state = self.trials.reference.state
        if state:
            set_state(party, state, self.trials.original, self.trials.limits.load)

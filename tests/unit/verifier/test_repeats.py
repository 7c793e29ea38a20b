"""A repeated timing: what is prepared again, what is kept, and where the time goes."""

from __future__ import annotations

import contextlib
import random
import time
from types import SimpleNamespace

import pytest

from verifier.judge.party_failure import PartyFailure
from verifier.limits import Limits
from verifier.timing.blocks import Side
from verifier.timing.intervals import Repeatability
from verifier.timing.tournament import Tournament

SLOW = {"compile": 9.0}  # milliseconds


class Party:
    def __init__(self, role: str):
        self.role, self.alive, self.device = role, True, SimpleNamespace(usual_wait_ns=lambda: None)
        self.binding = SimpleNamespace(spread=lambda wide: None)

    def rest(self, anew: bool = False) -> None: ...


class Gate:
    """The gate of a device on which another judge measures for a while."""

    def __init__(self):
        self.frozen = 0.0
        self.works_for_others = False

    def rests(self, seconds: float) -> bool:
        return not self.works_for_others

    def frozen_seconds(self) -> float:
        self.frozen += 2.0  # frozen while a baseline was prepared
        return self.frozen

    @contextlib.contextmanager
    def alone(self):
        time.sleep(0.03)
        yield
        time.sleep(0.02)


class Pool:
    def __init__(self, free: int | None = None):
        self.device = SimpleNamespace(kind="cuda", process_bytes=1, leader=lambda: None, free_bytes=self.free_bytes, throttled=lambda: None)
        self.gate, self.free, self.parties, self.spares = Gate(), free, [], 0

    def free_bytes(self) -> int | None:
        return None if self.free is None else self.free - 10 * sum(party.alive for party in self.parties)

    def reap(self) -> None: ...

    def stock(self, count: int) -> None: ...

    def settle(self) -> None: ...

    def take_all(self, wanted):
        fresh = [Party(role) for role, _, _ in wanted]
        self.parties += fresh
        return fresh

    def take(self, role: str, precision: str, mode: str) -> Party:
        return self.take_all([(role, precision, mode)])[0]

    def give_back(self, party: Party) -> None:
        party.alive = False

    dismiss = give_back

    def at_once(self, work):
        return [one() for one in work]


class Timed(Tournament):
    """A tournament that does everything except starting and calling the processes."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made, self.stated, self.measured, self.slow, self.waits = [], [], [], set(), []
        self.broken = set()
        self.failing, self.request, self.before_that = [], "call", 0  # which party fails in measurements, in which request, and after how many
        self.luck = [1.0]  # factors for the times of successive program processes

    def _program(self, runner):
        return self._side(None, runner)

    def _baseline(self, name, party):
        self.made.append(name)
        if name in self.slow:
            raise PartyFailure("timed_out", f"the {name} baseline failed: the first call took more than 180 s")
        if name in self.broken:
            raise PartyFailure("raised", "it overwrites its own outputs")
        return self._side(name, party)

    def _side(self, name, party):
        return Side(name, SimpleNamespace(party=party))

    def _set_state(self, party):
        if not party.alive:
            raise PartyFailure("crashed", "it had ended before", request="take_state")
        self.stated.append(party)

    def _measure(self, these, before, rng: random.Random, share):
        time.sleep(0.01)
        if self.failing and len(self.measured) >= self.before_that:
            raise PartyFailure("raised", "no graph today\nat line 3", request=self.request, whose=self.failing.pop())
        self.measured.append([[side.name for side in pair.sides] for pair in these])
        for pair in these:
            pair.watch.waits_ns, pair.watch.usual_wait_ns = list(self.waits), 300_000
        for pair in these:
            for side in pair.sides:
                assert not side.blocks, "a repeat begins without samples"
                milliseconds = SLOW.get(side.name or "", 2.0 if side.name else 1.0)
                if side.name is None:
                    milliseconds *= self.luck[0]
                    self.luck.append(self.luck.pop(0))
                side.blocks += [[milliseconds, milliseconds]] * 8
                laps = side.laps
                laps.inner += [int(milliseconds * 1e6)] * 16
                laps.wall, laps.copied, laps.ahead = list(laps.inner), [0] * 16, [0] * 16


@pytest.fixture
def timed():
    def make(free: int | None = None, **limits: float) -> Timed:
        draws = random.Random(1)
        trials = SimpleNamespace(
            limits=Limits(**limits),
            draws=draws,
            make_room=lambda: None,
            input_bytes=0,
            expected_specs=[],
            peak_bytes=lambda: 9,
            ledger=lambda: SimpleNamespace(state=2, eager=3),
            reference=SimpleNamespace(eager_party=None),
        )
        job = SimpleNamespace(tier="full", precision="fp32-strict", mode="train")
        return Timed(Pool(free), trials, job, 1, lambda runner: None, Repeatability(least=0.01, noise=0.1, weight=3))

    return make


def test_a_repeat_compiles_only_what_may_be_at_fault(timed):
    of = timed()
    timing, _ = of.run(None)
    assert sorted(of.made) == ["compile", "compile-max-autotune", "cuda-graph", "eager", "eager", "eager"]
    first = list(of.pool.parties)
    of.made.clear()
    timing, _ = of.run(None)
    assert sorted(of.made) == ["compile", "eager", "eager", "eager"], "slower than eager: made anew"
    assert len(of.stated) == 2, "those that stay get the weights that they began with"
    alive = [party for party in of.pool.parties if party.alive]
    assert len(alive) == 9 and len([party for party in alive if party in first]) == 2
    assert [c.baseline for c in timing.comparisons] == ["eager", "compile", "compile-max-autotune", "cuda-graph"]
    of.close()
    assert not any(party.alive for party in of.pool.parties)


def test_a_kept_baseline_that_died_is_made_anew(timed):
    of = timed()
    of.run(None)
    of.prepared["cuda-graph"].caller.party.alive = False
    of.made.clear()
    of.run(None)
    assert sorted(of.made) == ["compile", "cuda-graph", "eager", "eager", "eager"]


def test_the_processes_of_the_first_measuring_do_not_count_against_the_room_for_the_second(timed):
    of = timed(free=130)  # nine processes of ten bytes fit into 70 % of it
    of.run(None)
    of.run(None)
    assert [len(pairs) for pairs in of.measured] == [3, 3]


def test_the_report_says_how_long_others_measured_and_how_long_this_one(timed):
    of = timed()
    timing, _ = of.run(None)
    assert 2.05 <= timing.waiting < 3 and 0.01 <= timing.measuring < 1
    timing, _ = of.run(None)
    assert timing.waiting > 4, "repeats are part of it"


def test_where_processes_differ_more_of_them_are_measured_once(timed):
    of = timed()
    of.luck = [0.95, 1.0, 1.05]
    timing, _ = of.run(None)
    assert timing.pairs == 6 and [len(pairs) for pairs in of.measured] == [3, 3]
    assert of.measured[1] == [[None, "eager"]] * 3, "what torch.compile made is not measured again"
    assert timing.comparisons[0].rounds == [0, 0, 0, 1, 1, 1] and timing.comparisons[1].rounds == [0]
    assert sorted(set(timing.comparisons[0].processes)) == [0, 1, 2, 3, 4, 5] and set(timing.comparisons[1].processes) == {0}
    made = list(of.made)
    of.luck = [0.5, 1.0, 2.0]
    timing, _ = of.run(None)
    assert timing.pairs == 3, "a host as busy as that would be no better for three more"
    made = list(of.made)
    of.luck = [1.0]
    timing, _ = of.run(None)
    assert timing.pairs == 3
    assert sorted(of.made[len(made) :]) == ["compile", "eager", "eager", "eager"], "a repeat compiles what is slower than eager, as ever"
    of.close()
    assert not any(party.alive for party in of.pool.parties)


def test_further_processes_have_the_memory_of_the_first(timed):
    of = timed(free=129)  # nine processes of ten bytes fit into 70 % of it
    of.luck = [0.95, 1.0, 1.05]
    timing, _ = of.run(None)
    assert timing.comparisons[0].rounds == [0, 0, 0, 1, 1, 1], "not one pair after the other, which would say nothing of how far processes lie apart"


@pytest.mark.parametrize("whose", ["eager", "rival", "reference"])
def test_where_further_processes_cannot_be_had_the_first_ones_count(timed, whose):
    of = timed()
    of.luck, of.failing, of.before_that = [0.95, 1.0, 1.05], [whose], 1
    said = []
    of.progress = said.append
    timing, _ = of.run(None)
    assert timing.pairs == 3 and len(timing.comparisons) == 4 and f"no further processes: {whose} failed: no graph today" in said
    of.close()
    assert not any(party.alive for party in of.pool.parties)


def test_a_program_that_fails_in_a_further_process_has_failed(timed):
    of = timed()
    of.luck, of.failing, of.before_that = [0.95, 1.0, 1.05], ["program"], 1
    with pytest.raises(PartyFailure):
        of.run(None)


def test_a_baseline_that_took_too_long_is_not_waited_for_twice(timed):
    of = timed()
    of.slow = {"compile-max-autotune"}
    timing, _ = of.run(None)
    assert [c.baseline for c in timing.comparisons] == ["eager", "compile", "compile-reduce-overhead", "cuda-graph"]
    assert len([party for party in of.pool.parties if party.alive]) == 9, "the process of the one that took too long has ended"
    of.made.clear()
    timing, _ = of.run(None)
    assert "compile-max-autotune" not in of.made and "compile-reduce-overhead" not in of.made
    assert [c.baseline for c in timing.comparisons] == ["eager", "compile", "compile-reduce-overhead", "cuda-graph"]
    assert "180 s" in of.reasons["compile-max-autotune"] and timing.preparing["compile-max-autotune"] >= 0, "the report says why it is missing"


@pytest.mark.parametrize(("costly", "times"), [(60.0, 2), (-1.0, 1)])
def test_a_baseline_that_fails_after_minutes_is_not_tried_twice(timed, monkeypatch, costly, times):
    monkeypatch.setattr("verifier.timing.processes.COSTLY", costly)
    of = timed()
    of.broken = {"compile"}
    for _ in range(2):
        timing, _ = of.run(None)
        assert [c.baseline for c in timing.comparisons] == ["eager", "compile-max-autotune", "cuda-graph"] and "outputs" in of.reasons["compile"]
    assert of.made.count("compile") == times


def test_where_the_stand_in_takes_too_long_as_well_both_are_missing(timed):
    of = timed()
    of.slow = {"compile-max-autotune", "compile-reduce-overhead"}
    timing, _ = of.run(None)
    assert [c.baseline for c in timing.comparisons] == ["eager", "compile", "cuda-graph"]
    assert {"compile-max-autotune", "compile-reduce-overhead"} <= set(of.reasons)
    of.made.clear()
    of.run(None)
    assert sorted(of.made) == ["compile", "eager", "eager", "eager"]


def test_without_time_for_its_search_the_stand_in_comes_up_with_the_others(timed):
    of = timed(autotune=0)
    timing, _ = of.run(None)
    assert "compile-max-autotune" not in of.made and len(of.pool.parties) == 9
    assert [c.baseline for c in timing.comparisons] == ["eager", "compile", "compile-reduce-overhead", "cuda-graph"]
    assert "no time" in of.reasons["compile-max-autotune"]


def test_without_a_baseline_that_fails_while_it_is_timed_the_rest_is_measured(timed):
    of = timed()
    of.failing = ["cuda-graph", "compile-max-autotune"]
    timing, _ = of.run(None)
    assert [c.baseline for c in timing.comparisons] == ["eager", "compile", "compile-reduce-overhead"]
    assert of.reasons["cuda-graph"] == "cuda-graph: it failed while it was timed: no graph today" and "compile-max-autotune" in of.reasons
    assert of.given_up == {"cuda-graph", "compile-max-autotune"}
    of.close()
    assert not any(party.alive for party in of.pool.parties)


@pytest.mark.parametrize(
    ("whose", "asked"), [("program", "call"), ("eager", "call"), ("reference", "inputs"), ("rival", "call"), ("compile", "memory")]
)
def test_whoever_else_fails_ends_the_measurement(timed, whose, asked):
    of = timed()
    of.failing, of.request = [whose], asked
    with pytest.raises(PartyFailure) as raised:
        of.run(None)
    assert raised.value.whose == whose and not of.given_up


@pytest.mark.parametrize("others", [True, False])
def test_who_keeps_the_gpu_at_work_is_seen_when_the_programs_are_gone(timed, others):
    of = timed()
    of.waits, of.pool.gate.works_for_others = [2_200_000] * 12, others
    of.run(None)
    programs = [party for party in of.pool.parties if party.role == "runner"]
    assert len(programs) == 3 and not any(party.alive for party in programs)
    assert bool(of.crowded) is others and bool(of.burning) is not others

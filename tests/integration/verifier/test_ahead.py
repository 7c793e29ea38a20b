"""Work that starts before it is timed, with real processes: baselines that compile during the program's trials, and processes that import torch."""

import pytest
from semantics_bench import Semantics, task

from verifier.build.artefacts import NONE
from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials
from verifier.jobs import VerifyJob
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession
from verifier.limits import GIB, Limits
from verifier.timing.intervals import Repeatability
from verifier.timing.tournament import Tournament

INIT = "self.norm = nn.BatchNorm1d(256)"  # with state that is changed by calls
COMPILED = "return (F.gelu(self.norm(x)), torch.compile)[0]"  # refers to the compiler, which is enough to be called ahead
LIMITS = Limits(memory=3 * GIB, full_timing=0.2, correctness=0.1, load=60, call=60)


class Watched(Tournament):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.loaded: list[str] = []

    def _loaded(self, name, party):
        self.loaded.append(name)
        return super()._loaded(name, party)


@pytest.fixture
def tournament(request, tmp_path, monkeypatch):
    """Creates a judge that has already run the program's trials, and checks that no process is left at the end. Only a judge's own processes can be
    timed."""
    timed = request.node.get_closest_marker("timed") is not None
    bench = Semantics(tmp_path, limits=LIMITS, nursery=None if timed else request.getfixturevalue("nursery"))
    bench.pool.spares = 0
    monkeypatch.setattr(bench.device, "begins_ahead", True)
    sessions = []

    def made(body: str, others: list[str]):
        source = task(body, init=INIT) if "norm" in body else task(body)
        program = source.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
        session = ReferenceSession(bench.pool, source, "fp32-strict", "train")
        sessions.append(session)
        trials = Trials(session, 7, full=False, on_progress=lambda text: None, program=program)
        trials.prepare()

        def enlist(runner):
            runner.import_program(program, NONE, LIMITS.load)
            return Subject(runner)

        job = VerifyJob(task_source=source, program_source=program, tier="full")
        of = Watched(bench.pool, trials, job, 1, enlist, Repeatability(least=0.05, noise=0.2, weight=6), others=others)
        of.begin_ahead()

        def run():
            subject = enlist(bench.pool.take("runner"))
            trials.reconstruct(subject)
            trials.run(subject)
            timing, _ = of.run(subject)
            bench.pool.give_back(subject.runner)
            return timing

        return of, run

    yield made
    for session in sessions:
        session.close()
    bench.pool.forget()  # unused processes, which a judge ends after its job
    assert not [party for party in bench.pool.busy if party.role == "baseline" and party.alive]
    bench.close()


@pytest.mark.timed
def test_it_compiles_once_and_is_confirmed_when_the_program_has_been_tried(tournament):
    of, run = tournament("return F.gelu(self.norm(x))", ["compile"])
    of.ahead["compile"].wait()
    assert of.loaded == ["compile"] and of.ahead["compile"].seconds > 0
    timing = run()
    assert [comparison.baseline for comparison in timing.comparisons] == ["eager", "compile"], of.reasons
    assert of.loaded.count("compile") == 1 and of.loaded.count("eager") in (3, 6) and not of.ahead and not of.outputs.failed
    assert timing.preparing["compile"] > 0
    of.close()


@pytest.mark.slow
def test_one_that_fails_ahead_is_named_with_its_reason(tournament, monkeypatch):
    def broken(self, name, party):
        raise PartyFailure("raised", "no compiler today\nat line 3", request="compile")

    monkeypatch.setattr(Watched, "_first_call", broken)
    of, run = tournament("return F.gelu(x)", ["compile"])
    timing = run()
    assert [comparison.baseline for comparison in timing.comparisons] == ["eager"]
    assert of.reasons == {"compile": "compile: no compiler today"} and "compile" in timing.preparing
    of.close()


@pytest.mark.slow
def test_where_the_program_fails_before_nobody_is_left(tournament):
    of, _ = tournament("return F.gelu(x)", ["compile"])
    assert len(of.ahead) == 1
    party = of.ahead["compile"].party
    of.close()
    assert not party.alive and not of.ahead


@pytest.mark.slow
@pytest.mark.timed
def test_where_memory_holds_not_all_at_once_it_compiles_in_its_round(tournament, monkeypatch):
    monkeypatch.setattr(Watched, "_rounds", lambda self, count, beside: [range(at, at + 1) for at in range(count)])
    monkeypatch.setattr(Watched, "_first_call", None)
    of, run = tournament("return F.gelu(self.norm(x))", ["compile"])
    of.ahead["compile"].wait()
    assert not of.ahead["compile"].calls
    timing = run()
    assert [comparison.baseline for comparison in timing.comparisons] == ["eager", "compile"], of.reasons
    assert of.loaded.count("compile") == 1 and of.loaded.count("eager") in (3, 6) and not of.ahead
    of.close()


def test_processes_that_will_be_taken_import_torch_meanwhile(tmp_path):
    bench = Semantics(tmp_path, limits=LIMITS)
    pool = bench.pool
    try:
        for party in pool.waiting:
            party.end()
        pool.stock(2)
        first, second = pool.waiting
        pool.stock(1)
        assert pool.waiting == [first, second], "there are enough"
        first.spawned.kill()
        pool.settle()  # a dead process does not block anything either
        first.spawned.process.wait()
        pool.stock(2)
        assert len(pool.waiting) == 2 and pool.waiting[0] is second
        pool.settle()
        assert pool.take("baseline") is second
    finally:
        bench.close()


@pytest.mark.slow
@pytest.mark.parametrize("body", ["return F.gelu(self.norm(x))  # as a program in triton", COMPILED], ids=["triton", "torch.compile"])
def test_what_compiles_in_its_first_call_is_called_before_its_turn(tournament, body):
    of, run = tournament(body, [])
    calls, constructed = [], []
    first_call, reconstruct = of.trials.first_call, of.trials.reconstruct
    of.trials.first_call = lambda caller: calls.append(caller.party) or first_call(caller)
    of.trials.reconstruct = lambda subject, *how, **named: constructed.append(subject.runner) or reconstruct(subject, *how, **named)
    timing = run()
    of.close()
    assert not of.outputs.failed, "its state is that of a program which was never called"
    assert len(calls) == len(set(map(id, calls))) == timing.pairs and all(constructed.count(party) == 2 for party in calls)

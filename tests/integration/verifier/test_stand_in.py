"""With real processes: if a baseline is not ready in time, its stand-in is timed to the end."""

from functools import partial

import pytest
from semantics_bench import Semantics, task

from verifier.build.artefacts import NONE
from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials
from verifier.jobs import VerifyJob
from verifier.judge.session import ReferenceSession
from verifier.limits import GIB, Limits
from verifier.timing.intervals import Repeatability
from verifier.timing.tournament import Tournament

SOURCE = task("return F.gelu(x)")
PROGRAM = SOURCE.replace("class Model(", "class ModelNew(")


def enlisted(bench: Semantics, runner) -> Subject:
    runner.import_program(PROGRAM, NONE, bench.pool.limits.load)
    return Subject(runner)


@pytest.mark.slow
def test_a_stand_in_outlives_the_threads_that_brought_the_others_up(tmp_path):
    """A stand-in that takes a spare process survives in any case. Here there is no spare process, so the stand-in gets a new one."""
    bench = Semantics(tmp_path, limits=Limits(memory=3 * GIB, full_timing=0.2, correctness=0.1, autotune=0.5, load=60, call=60))
    bench.pool.spares = 0
    enlist = partial(enlisted, bench)
    session = ReferenceSession(bench.pool, SOURCE, "fp32-strict", "train")
    try:
        trials = Trials(session, 7, full=False, on_progress=lambda text: None)
        trials.prepare()
        job = VerifyJob(task_source=SOURCE, program_source=PROGRAM, tier="full")
        known = Repeatability(least=0.05, noise=0.2, weight=6)
        of = Tournament(bench.pool, trials, job, 1, enlist, known, others=["compile-max-autotune"])
        runner = bench.pool.take("runner")
        subject = enlist(runner)
        trials.reconstruct(subject)
        trials.run(subject)
        timing, _ = of.run(subject)
        of.close()
        bench.pool.give_back(runner)
    finally:
        session.close()
        bench.close()
    assert [comparison.baseline for comparison in timing.comparisons] == ["eager", "compile-reduce-overhead"], of.reasons
    assert of.reasons == {"compile-max-autotune": "compile-max-autotune: it did not finish within 0.5 s"}
    assert len(of.outputs.failed) == 0

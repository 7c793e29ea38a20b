"""Checks the ledger of `verifier.judge.memory` by counting the bytes of all tensors and arenas that the judge holds at every request of an
evaluation."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict

import pytest
import torch
from semantics_bench import LIMITS

from tests.unit.verifier.l1_norm import l1_norm
from tests.verifier_data import prepared
from verifier.devices.opening import open_device
from verifier.jobs import VerifyJob
from verifier.judge import memory
from verifier.judge.asking import Party
from verifier.judge.evaluation import Evaluation
from verifier.judge.memory import Ledger
from verifier.judge.pool import Pool
from verifier.judge.session import ReferenceSession
from verifier.timing import series, tournament

UNIT = 4 << 20  # bytes of the input, and also of the output
TASK = l1_norm(UNIT // 4096, 1024)


def held() -> float:
    """Counts units of large storages. A storage that several tensors share is counted once."""
    found = {}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor:
            storage = thing.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(size for size in found.values() if size > UNIT / 16) / UNIT


@pytest.fixture(scope="module", params=["call by call", "in series"])
def moments(request, tmp_path_factory):
    """Returns the maximum number of units for each kind of request during an evaluation that passed. Large values are timed call by call, and smaller
    ones in series, where each call has separate memory."""
    large = request.param == "call by call"
    folder = tmp_path_factory.mktemp("memory")
    device = open_device("cpu", prepared(folder))
    pool = Pool(device, LIMITS, spares=2)
    most: dict[str, float] = defaultdict(float)
    times: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(memory, "LARGE", UNIT // 2)
            patch.setattr(series, "MOST_BYTES", UNIT // 2)
        patch.setattr(tournament, "MIN_BLOCKS", {"quick": 2, "full": 2})
        patch.setattr(tournament, "MAX_BLOCKS", {"quick": 2, "full": 2})
        patch.setattr(device, "flush_caches", lambda: None)
        ask, timed, in_series = Party.ask, Party.timed, Party.series
        stage = ["build"]

        def count(name):
            times[name] += 1
            if times[name] <= OFTEN:
                most[name] = max(most[name], held())

        def counted(self, kind, *args, **options):
            if kind in ("inputs", "run", "oracle", "again", "observe"):
                count(f"{stage[0]} {self.role} {kind}")
            return ask(self, kind, *args, **options)

        def counted_call(self, message, limit, hand_over):
            count(f"{stage[0]} {self.role} call")
            return timed(self, message, limit, hand_over)

        def counted_series(self, *args):
            count(f"{stage[0]} {self.role} series")
            return in_series(self, *args)

        patch.setattr(Party, "ask", counted)
        patch.setattr(Party, "series", counted_series)
        patch.setattr(Party, "timed", counted_call)
        job = VerifyJob(task_source=TASK, program_source=TASK.replace("class Model", "class ModelNew"), seed=3)
        sessions = []

        def session(job):
            sessions.append(ReferenceSession(pool, job.task_source, job.precision, job.mode))
            return sessions[0]

        def on_stage(event):
            if event.status == "started":
                stage[0] = event.stage

        background = held()
        report = Evaluation(job, pool, folder, session, on_stage).run()
        sessions[0].close()
    pool.close()
    assert report.status in ("passed", "inconclusive"), report.message
    assert len(report.trials) >= 7
    print({name: round(units - background, 2) for name, units in most.items()}, {s.name: s.seconds for s in report.stages})
    return large, {name: units - background for name, units in most.items() if units}


OFTEN = 2  # requests of each kind for which the slow count is made
ROOM = 0.3  # units, for small values
LEARNT = 8  # units of small values that are kept rather than drawn again: first inputs and expectation, kept draws of a series


@pytest.mark.slow
def test_the_judge_keeps_no_more_than_the_ledger_says(moments):
    """The sums exclude what the judge's parties hold besides arenas (`eager`, `precise`, outputs of the last call)."""
    large, moments = moments
    if not large:
        # The ledger states only the maximum that a series takes, in the party and in the judge's copies.
        before = max(units for name, units in moments.items() if name.startswith("correctness"))
        assert "timing runner series" in moments
        assert max(moments.values()) - before <= series.series_bytes(2 * UNIT) / UNIT + ROOM, moments
        return
    ledger = Ledger(inputs=1, outputs=1, state=0, eager=0, precise=0)
    runner = 1  # the outputs of its last call, which the ledger includes
    expected = {
        "build reference run": ledger.learning() - 1,
        "correctness reference oracle": ledger.precise_run() - runner,
        "correctness runner call": ledger.call() - runner,
        "correctness runner again": ledger.comparison() - 2 * runner,
        "timing runner call": ledger.timed(),
        "timing baseline call": ledger.timed(),
    }
    for name, units in expected.items():
        assert moments[name] <= units + ROOM, (name, moments)
    assert max(moments.values()) <= 7 + ROOM, moments

"""A capture's process that starts while the task is still being admitted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from verifier_bench import forward

from verifier.jobs import AdmitJob, CaptureJob
from verifier.judge import admission
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Importing

EXPORTER = "torch.export._trace"


def task(number: int, body: str = "return x * {}") -> str:
    return forward(body.format(number))


def admitted(bench, source: str, **options):
    return bench.run(AdmitJob(task_source=source, capture_follows=True, **options)).admission


def captured(bench, source: str):
    capture = bench.run(CaptureJob(task_source=source)).capture
    return capture.model_copy(update={"seconds": 0.0})


def state(party: Party) -> str:
    """Returns the letter by which the kernel describes the process's state."""
    return Path(f"/proc/{party.spawned.process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def party(quick, monkeypatch):
    """Returns a function that yields the process that the last admission started in advance."""
    taken: list[Importing] = []
    importing = quick.pool.importing
    monkeypatch.setattr(quick.pool, "importing", lambda source: taken.append(importing(source)) or taken[-1])
    return lambda: taken[-1].party


def test_the_capture_uses_the_process_that_began_during_the_admission(quick, party):
    source = task(3)
    assert admitted(quick, source).ok
    assert captured(quick, source).graph is not None
    assert quick.judge.session.party is party() and quick.judge.foreseen is None


def test_admission_and_capture_are_the_same_as_one_after_the_other(quick, party):
    source = task(4)
    found = admitted(quick, source)
    capture = captured(quick, source)
    quick.judge.captures._known.clear()
    quick.judge.end_session()
    plain = quick.run(AdmitJob(task_source=source)).admission
    assert found.model_copy(update={"eager_ms": None}) == plain.model_copy(update={"eager_ms": None, "memory_bytes": found.memory_bytes})
    assert captured(quick, source) == capture
    assert quick.judge.session.party is not party()


def test_a_refused_task_ends_it_at_once(quick, party):
    source = forward("raise ValueError('too small')")
    refused = admitted(quick, source)
    assert not refused.ok and not party().alive and quick.judge.foreseen is None
    assert refused.problems == quick.admit(source).problems
    quick.pool.reap()
    assert party().spawned.ended


def test_a_source_that_cannot_be_read_starts_none(quick, monkeypatch):
    monkeypatch.setattr(quick.pool, "importing", None)
    assert not admitted(quick, "import torch\n").ok


def test_a_graph_that_the_judge_knows_starts_none(quick, monkeypatch):
    source = task(5)
    captured(quick, source)
    monkeypatch.setattr(quick.pool, "importing", None)
    assert admitted(quick, source).ok


@pytest.mark.parametrize("job", [AdmitJob(task_source=task(6)), CaptureJob(task_source=task(6)), CaptureJob(task_source=task(7), precision="bf16")])
def test_another_job_ends_it(quick, party, job):
    assert admitted(quick, task(7)).ok
    first = party()
    quick.run(job)
    assert not first.alive and (quick.judge.session is None or quick.judge.session.party is not first)


def test_it_has_no_role_and_stands_still_while_eager_is_timed(quick, party, monkeypatch):
    seen = []
    estimate = admission._estimate

    def estimated(*arguments):
        deadline = time.monotonic() + 10
        while state(party()) != "T" and time.monotonic() < deadline:
            time.sleep(0.01)  # a running thread stops when the kernel next looks at its signals
        seen.append((state(party()), party().role))
        found = estimate(*arguments)
        seen.append((state(party()), party().role))
        return found

    monkeypatch.setattr(admission, "_estimate", estimated)
    assert admitted(quick, task(8)).eager_ms > 0 and seen == [("T", ""), ("T", "")]
    captured(quick, task(8))
    assert quick.judge.session.party is party(), "it runs again"


def test_where_it_fails_the_capture_gets_a_fresh_process(quick, party, monkeypatch):
    def failing(self, source):
        raise PartyFailure("raised", "no such library", request="foresee")

    monkeypatch.setattr(Party, "foresee", failing)
    source = task(9)
    assert admitted(quick, source).ok
    assert captured(quick, source).graph is not None and quick.judge.session.party is not party()


def test_the_libraries_at_the_beginning_of_the_source_are_imported_before_the_role(quick):
    party = quick.pool.spawn()
    try:
        party.foresee("import colorsys\nfrom wave import open as opened\nlate = 1\nimport chunk_that_does_not_exist\n")
        with pytest.raises(PartyFailure, match="chunk_that_does_not_exist"):
            party.foresee('"""A text."""\nimport chunk_that_does_not_exist\n')
        assert party.role == ""
        party.become("reference")
        imported = f"import sys\nassert {{'colorsys', 'wave', {EXPORTER!r}}} <= set(sys.modules)\n"
        party.ask("load", {"source": forward("return x", imported), "seed": 1})
    finally:
        party.end()


@pytest.fixture
def ahead(quick, monkeypatch):
    """A pool that keeps only a party with the exporter ready."""
    monkeypatch.setattr(quick.pool.device, "begins_ahead", True)
    monkeypatch.setattr(quick.pool, "spares", 1)
    quick.pool.refill()
    yield quick.pool
    for party in [*quick.pool.waiting, *quick.pool.builders, *([quick.pool.exporter.party] if quick.pool.exporter else [])]:
        party.end()
    quick.pool.waiting, quick.pool.builders, quick.pool.exporter = [], [], None


def test_a_party_with_the_exporter_is_kept_ready_and_used_first(quick, ahead, party):
    kept = ahead.exporter.party
    assert kept.spawned in ahead.alive(), "it is frozen while another judge measures"
    ahead.settle()
    assert kept.started and kept.role == ""
    source = task(11)
    assert admitted(quick, source).ok and party() is kept and ahead.exporter is None
    assert captured(quick, source).graph is not None and quick.judge.session.party is kept
    ahead.refill()
    assert ahead.exporter.party is not kept


def test_one_that_has_died_is_replaced(quick, ahead, party):
    kept = ahead.exporter.party
    kept.spawned.kill()
    kept.spawned.exit_status()
    ahead.settle()
    source = task(12)
    assert admitted(quick, source).ok and party() is not kept
    assert captured(quick, source).graph is not None and quick.judge.session.party is party()

"""Attributes the work of a timed process's calls from outside. This is tested without the clock's verdict, which a busy host would spoil."""

from __future__ import annotations

import ast
import random
import subprocess
from pathlib import Path

import pytest
from semantics_bench import Semantics, task

from verifier.build import inline_helper
from verifier.build.artefacts import Artefacts
from verifier.build.raw import raw_requests
from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials
from verifier.integrity.judging import judge_evidence
from verifier.integrity.observation import Observation
from verifier.integrity.timed_process import TimedProcess
from verifier.integrity.variants import Variant
from verifier.judge.session import ReferenceSession
from verifier.timing.blocks import Side

pytestmark = pytest.mark.timed  # samples mean little if other tests keep every processor busy

TASK = task("return torch.relu(x @ y)", "torch.randn(320, 320); torch.randn(320, 320)")
HELPER = Path(inline_helper.__file__).read_text()
OWN = r"""
extern "C" void product(const float* a, const float* b, float* c, int n) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) c[i * n + j] = 0.f;
    for (int k = 0; k < n; ++k) for (int j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}
extern "C" void rectify(float* c, int n) { for (int i = 0; i < n * n; ++i) c[i] = c[i] > 0.f ? c[i] : 0.f; }
extern "C" void burn(float* c, int n) { for (int r = 0; r < 100; ++r) for (int i = 0; i < n * n; ++i) { volatile float* v = c + i; *v = *v * 1.f; } }
"""
CLASS = """
import torch.nn as nn

L = stitch_build("cpp", SOURCE)


def p(t):
    return ctypes.c_void_p(t.data_ptr())


def own(x, y):
    c = torch.empty(x.shape[0], y.shape[1])
    L.product(p(x), p(y), p(c), 320)
    return c


class ModelNew(nn.Module):
    age = 0

    def forward(self, x, y):
        self.age += 1
        BODY
        return c
"""
PROGRAMS = {
    "own": "c = own(x, y); L.rectify(p(c), 320)",
    "burns": "c = torch.relu(x @ y); L.burn(p(c), 320)",
    "burns beside its own": "c = own(x, y); L.rectify(p(c), 320); L.burn(p(c), 320)",
    "own while young": "c = own(x, y) if self.age < 20 else x @ y; L.rectify(p(c), 320)",
    "own when old": "c = own(x, y) if self.age > 20 else x @ y; L.rectify(p(c), 320)",
}


@pytest.fixture
def observed(tmp_path):
    bench = Semantics(tmp_path)

    def look(name: str):
        program = "import ctypes\nimport torch\n" + HELPER + f'\nSOURCE = r"""{OWN}"""\n' + CLASS.replace("BODY", PROGRAMS[name])
        artefacts = built(program, tmp_path)
        session = ReferenceSession(bench.pool, TASK, "fp32-strict", "train")
        trials = Trials(session, 7, full=False, on_progress=lambda text: None)
        trials.prepare()

        def enlist(party, variant) -> Subject:
            party.import_program(variant.source, variant.artefacts, bench.pool.limits.load)
            return Subject(party)

        subject = enlist(bench.pool.take("runner"), Variant(program, artefacts))
        assert not trials.run(subject).wrong
        trials.reconstruct(subject)
        timed = TimedProcess(Side(None, subject.caller))
        check = timed.noting(lambda number, side, call: None)
        for number in range(20):
            timed.drawn(number, number)
            check(number, timed.side, subject.caller.call(session.inputs(number), number))
        ms = min(subject.caller.call(session.inputs(1), 1).inner for _ in range(3)) / 1e6
        evidence, seen = Observation(
            timed, trials, program, artefacts, lambda: bench.pool.take("runner"), enlist, tmp_path / "shim", ms, random.Random(3)
        ).look()
        return seen, judge_evidence(evidence, program, artefacts, "cpu", ms, seen)

    yield look
    bench.close()


def built(program: str, folder: Path) -> Artefacts:
    (request,) = raw_requests(ast.parse(program))
    library = folder / "own.so"
    subprocess.run(["g++", *request.options(""), "-x", "c++", "-", "-o", str(library)], input=request.source.encode(), check=True)
    data = library.read_bytes()
    return Artefacts([(request.library(""), len(data))], data, 0.0)


def test_own_work_that_is_needed_counts(observed):
    seen, judged = observed("own")
    assert judged.program_class == "custom" and not seen.needless and not seen.unlike
    assert judged.kernels[0].name == "product" and judged.own_share > 0.8


def test_work_that_changes_nothing_does_not(observed):
    seen, judged = observed("burns")
    assert seen.sampled.share > 0.1 and seen.needless == ["0:burn"]
    assert judged.program_class == "orchestration" and judged.own_share < 0.1
    assert "burn" in next(finding.message for finding in judged.findings if finding.rule == "does-nothing")
    assert [kernel.own for kernel in judged.kernels if kernel.name == "burn"] == [False]


def test_each_function_is_asked_for_itself(observed):
    seen, judged = observed("burns beside its own")
    assert seen.needless == ["0:burn"]
    assert {kernel.name: kernel.own for kernel in judged.kernels if kernel.name in ("burn", "product")} == {"burn": False, "product": True}


def test_what_a_young_process_did_does_not_count(observed):
    _, judged = observed("own while young")
    assert judged.program_class == "orchestration"


def test_nor_does_what_it_only_does_when_it_has_been_timed(observed):
    seen, judged = observed("own when old")
    assert seen.unlike and judged.program_class == "orchestration"
    assert "two-faced" in {finding.rule for finding in judged.findings}

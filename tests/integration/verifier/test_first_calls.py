"""Programs that torch.compile compiles, with real processes: the compilation may take longer than a call, once, and no later call may."""

from __future__ import annotations

import dataclasses

import pytest
from semantics_bench import LIMITS, Semantics, task

from verifier.judge.party_failure import PartyFailure

pytestmark = pytest.mark.slow
TASK = task("return torch.tanh(self.l(x))", init="self.l = nn.Linear(256, 256)")
PROGRAM = (
    TASK.split("\n\n\ndef get_inputs")[0].replace("class Model(", "class ModelNew(").replace("def forward(self, x):", "def eager_forward(self, x):")
    + """

    @torch.no_grad()
    def forward(self, x):
        if getattr(self, "compiled_forward", None) is None:
            self.compiled_forward = torch.compile(self.eager_forward, backend=slow)
        return self.compiled_forward(x)


TIMES = []


def slow(graph, inputs):
    import time

    assert not TIMES, "another object of the same form finds the code of the first"
    TIMES.append(time.monotonic())
    time.sleep(SECONDS)
    return graph
"""
)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory, nursery):
    """Allows a call less time than the compilation takes, and a first call more."""
    semantics = Semantics(tmp_path_factory.mktemp("impatient"), limits=dataclasses.replace(LIMITS, call=4, compile_baseline=90), nursery=nursery)
    yield semantics
    semantics.close()


def test_a_compilation_longer_than_a_call_passes_and_happens_once(impatient):
    outcome = impatient.judge(PROGRAM.replace("SECONDS", "5"), TASK, full=True)
    assert not outcome.wrong and len(outcome.trials) > 8
    assert outcome.stage.compiling_seconds > 5 and outcome.stage.program_seconds - outcome.stage.compiling_seconds < 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.compile(", 'getattr(torch, "compile")('),  # a name that the source does not show
        ("return self.compiled_forward(x)", "hung()\n        return self.compiled_forward(x)"),
    ],
    ids=["not named", "hangs in a later call"],
)
def test_nothing_else_may_take_as_long(impatient, old, new):
    hung = "\n\ndef hung():\n    import time\n\n    if TIMES:\n        time.sleep(60)\n"
    assert old in PROGRAM
    with pytest.raises(PartyFailure, match="did not finish within 4 s") as raised:
        impatient.judge((PROGRAM.replace(old, new) + hung).replace("SECONDS", "5"), TASK)
    assert raised.value.kind == "timed_out"

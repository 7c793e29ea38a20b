"""The time limits of a program's calls if torch.compile or Triton's autotuner compiles it: each first call may take long, but all of them together
are limited."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from verifier.correctness.calling import Calls, Subject
from verifier.judge.first_calls import ALL_TOGETHER, FirstCalls
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values
from verifier.layout import Spec
from verifier.limits import Limits

LIMITS = Limits(call=2, compile_baseline=18, correctness=20)
COMPILED = "import torch\n\ncompiled = torch.compile(abs)\n"


class Clock:
    """A clock that only the test advances, and a gate that counts the calls that another judge may freeze."""

    def __init__(self):
        self.now, self.frozen, self.idle_calls = 100.0, 0.0, 0

    def frozen_seconds(self) -> float:
        return self.frozen

    @contextlib.contextmanager
    def idle(self):
        self.idle_calls += 1
        yield


class Process:
    """A process that can be the key of a weak dictionary."""


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("verifier.judge.first_calls.time.monotonic", lambda: clock.now)
    return clock


def calls_of(clock: Clock, source: str = COMPILED) -> FirstCalls:
    return FirstCalls(SimpleNamespace(gate=clock, limits=LIMITS), source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (COMPILED, True),
        ("import torch as t\n\n@t.compile\ndef f(x):\n    return x\n", True),
        ("from torch import compile as made\n\nf = made(abs)\n", True),
        ("import torch\n\nif False:\n    torch.compile(abs)\n", True),  # gains nothing but time
        ("import torch\n\nnet = torch.nn.Linear(2, 2)\nnet.compile(mode='max-autotune')\n", True),
        ("import re\nfrom re import compile as made\n\nword = re.compile('a')\n", False),
        ("import triton\n\n\n@triton.autotune(configs=[], key=[])\n@triton.jit\ndef kernel():\n    pass\n", True),
        ("from triton import autotune as tuned, jit\n\n\n@tuned(configs=[], key=[])\n@jit\ndef kernel():\n    pass\n", True),
        ("import triton\n\n\n@triton.jit\ndef kernel():\n    pass\n", False),
        ('"""Not torch.compile."""\nimport torch  # torch.compile\n\nname = "torch.compile"\n', False),
        ("import re\n\nre.compile('x')\n", False),
        ("import torch\n\ntorch.jit.script(abs)\n", False),
        ("\ufeff" + COMPILED, True),
        ("", False),
        ("def broken(:", False),
    ],
)
def test_only_code_that_names_the_compiler_has_more_time(clock, source, expected):
    caller = SimpleNamespace(limit=LIMITS.call, party=Process())
    calls = calls_of(clock, source)
    with calls.longer(caller):
        assert caller.limit == (LIMITS.compile_baseline if expected else LIMITS.call)
    assert calls.compiles is expected and caller.limit == LIMITS.call and clock.idle_calls == expected


def test_the_first_calls_of_a_process_share_a_limit_which_frozen_time_does_not_use_up(clock):
    calls, caller = calls_of(clock), SimpleNamespace(limit=LIMITS.call, party=Process())
    with calls.longer(caller):
        clock.now += 10
        clock.frozen += 4
    with calls.longer(caller):
        assert caller.limit == 12
        clock.now += 11
    with calls.longer(caller):
        assert caller.limit == LIMITS.call, "no call has less than the usual time"


def test_all_processes_share_one_too_and_calls_at_the_same_time_count_once(clock):
    calls = calls_of(clock)
    callers = [SimpleNamespace(limit=LIMITS.call, party=Process()) for _ in range(12)]
    for batch in (callers[0:1], callers[1:4], callers[4:7]):
        with contextlib.ExitStack() as together:
            for caller in batch:
                together.enter_context(calls.longer(caller))
                assert caller.limit == LIMITS.compile_baseline
            clock.now += LIMITS.compile_baseline - 1
    with calls.longer(callers[7]):
        assert callers[7].limit == ALL_TOGETHER, "what each of the batches above has left over"
        clock.now += ALL_TOGETHER
    with calls.longer(callers[8]):
        assert callers[8].limit == LIMITS.call


def test_the_message_names_the_compiler(clock):
    calls, caller = calls_of(clock), SimpleNamespace(limit=LIMITS.call, party=Process())
    with pytest.raises(PartyFailure) as raised, calls.longer(caller):
        raise PartyFailure("timed_out", "it did not finish within 18 s")
    assert raised.value.message == "it did not finish within 18 s in a call in which torch.compile may compile"
    assert caller.limit == LIMITS.call


def trials_of(clock: Clock, source: str = COMPILED, seconds: float = 0.0) -> tuple[Calls, list[float]]:
    """Returns trials whose program takes `seconds` for each call, and the limits under which its calls are made."""
    limits: list[float] = []
    reference = SimpleNamespace(pool=SimpleNamespace(gate=clock, limits=LIMITS), limits=LIMITS, backward=None, clock=lambda: clock.now)
    calls = Calls(reference, 7, False, lambda text: None, program=source)
    calls.input_specs, calls.expected_specs, calls.layout = [], [], []
    calls.ledger = lambda: SimpleNamespace(program=lambda: 0)
    calls.constructions = SimpleNamespace(construct=lambda *_: "", binding=SimpleNamespace(backward=lambda wanted: wanted))

    def call(self, *_, **__):
        limits.append(self.limit)
        clock.now += seconds

    calls.subject = Subject(Process())
    calls.call = call
    return calls, limits


def made(calls: Calls, monkeypatch, *sizes: int) -> None:
    monkeypatch.setattr("verifier.timing.blocks.Caller.call", calls.call)
    for size in sizes:
        tensor = torch.zeros(size)
        calls._timed_call(calls.subject.caller, Values([{"t": 0}], [Spec.of(tensor)], [tensor]), 1, True)


def test_in_the_trials_the_first_call_of_each_object_and_form_of_inputs_may_be_long(clock, monkeypatch):
    calls, limits = trials_of(clock)
    for _ in range(2):
        calls._construct(calls.subject, [])
        made(calls, monkeypatch, 3, 3, 4, 4, 3)
    assert limits == [18, 2, 18, 2, 2] * 2


def test_compilations_do_not_use_up_the_time_of_the_trials(clock, monkeypatch):
    calls, limits = trials_of(clock, seconds=9)
    calls.limits = LIMITS.__class__(call=2, compile_baseline=18, correctness=2)
    calls._construct(calls.subject, [])
    made(calls, monkeypatch, 1, 1)
    assert (calls.program_seconds, calls.compiling_seconds) == (18, 9)
    with pytest.raises(PartyFailure, match="took 27 s together"):
        made(calls, monkeypatch, 1, 1)
    assert limits == [18, 2, 2, 2]


def test_an_autotuner_may_compile_in_any_call_until_its_time_is_spent(clock, monkeypatch):
    calls, limits = trials_of(clock, "import triton\n\ntuned = triton.autotune(configs=[], key=[])\n", seconds=9)
    calls.limits = LIMITS.__class__(call=2, compile_baseline=18, correctness=2)
    calls._construct(calls.subject, [])
    made(calls, monkeypatch, 1, 1, 1)
    assert limits == [18, 9, 2] and (calls.program_seconds, calls.compiling_seconds) == (27, 18)
    with pytest.raises(PartyFailure, match="took 27 s together"):
        made(calls, monkeypatch, 1, 1)


def test_any_other_program_has_the_usual_time_for_its_first_call(clock, monkeypatch):
    calls, limits = trials_of(clock, "import torch\n")
    calls._construct(calls.subject, [])
    made(calls, monkeypatch, 3, 4)
    assert limits == [2, 2] and calls.compiling_seconds == 0

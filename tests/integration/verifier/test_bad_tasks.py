"""Bad input: for every task that cannot run, the verifier reports a problem with a line and a cause, and the service continues."""

from __future__ import annotations

import pytest
from verifier_bench import TASK, forward


def test_a_sound_task(bench):
    admission = bench.admit(TASK)
    assert admission.ok and admission.problems == [] and admission.flags == []
    assert admission.output_tree == "tensor" and admission.outputs[0].shape == (64, 512)
    assert admission.parameters == 512 and admission.eager_ms > 0


@pytest.mark.parametrize(
    ("body", "line", "cause"),
    [
        ("while True:\n    pass", (6, 7, 8), "did not finish"),
        ("kept = []\nwhile True:\n    kept.append(torch.ones(8 << 20))", (8, 9), "memory"),
        ("import socket\nsocket.create_connection(('1.1.1.1', 80))", (8,), "network"),
        ("open('/usr/here', 'w').write('x')", (7,), "write to the file system"),
        ("open('/tmp/here', 'w').write('x')", (7,), "write to the file system"),
        ("for _ in range(1 << 24):\n    print('x' * 64)", (8,), "prints more than"),
        ("import os\nfor _ in range(1 << 20):\n    os.write(1, b'x' * 1024)", None, "printed more than"),
        ("import ctypes\nctypes.string_at(0)", (7, 8), "SIGSEGV"),
        ("import os\nos.fork()", (8,), "start processes"),
    ],
)
def test_a_forward_that_the_sandbox_ends(bench, body, line, cause):
    refused(bench, body, line, cause)


@pytest.mark.parametrize(
    ("body", "line", "cause"),
    [
        ("return x * float('nan')", (6, 7), "NaN"),
        ("return x @ torch.rand(3, 3)", (7,), "RuntimeError"),
        ("self.calls = getattr(self, 'calls', 0) + 1\nreturn [x * 2] * (1 + self.calls % 2)", None, "returns 2 tensors in one call and 1 in another"),
        ("raise SystemExit(0)", (7,), "SystemExit"),
    ],
)
def test_a_bad_forward(quick, body, line, cause):
    refused(quick, body, line, cause)


def refused(bench, body, line, cause):
    admission = bench.admit(forward(body))
    assert not admission.ok
    problem = admission.problems[0]
    assert cause in problem.message
    if line is not None:
        assert problem.line in line


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("def f(:\n", "syntax error"),
        ("import torch\n", "no class `Model`"),
        (TASK.replace("import torch.nn as nn", "import torch.nn as nn\nimport requests"), "not allowed"),
        (TASK.replace("return [512]", "raise ValueError('no')"), "ValueError"),
        (TASK.replace("return [torch.rand(64, 512)]", "return [object()]"), "cannot be passed on"),
    ],
)
def test_a_bad_source(quick, source, cause):
    admission = quick.admit(source)
    assert not admission.ok and cause in admission.problems[0].message


def test_flags(quick):
    assert quick.admit(forward("return torch.zeros(4)")).flags == ["trivial"]
    assert quick.admit(forward("return x.clone()")).flags == ["trivial"]
    assert quick.admit(forward("return torch.dropout(x, 0.5, True)")).flags == ["stochastic"]
    # Sums whose order varies between calls, as with atomic additions, are not random numbers.
    moving = "torch.calls = getattr(torch, 'calls', 0) + 1\nreturn torch.softmax(x, dim=-1) * (1 + 5e-7 * torch.calls)"
    reordered = quick.admit(forward(moving))
    assert reordered.flags == [] and reordered.deterministic is False
    # The model's own counter is restored, so calls from the same state give the same result.
    counted = quick.admit(forward(moving.replace("torch.calls", "self.calls").replace("getattr(torch", "getattr(self").replace("5e-7", "1")))
    assert counted.ok and counted.flags == [] and counted.deterministic is True
    assert quick.admit(TASK).flags == []


@pytest.mark.timed
def test_inputs_for_which_the_task_returns_another_number_of_tensors_are_no_fault_of_the_program(bench):
    """The task's own inputs are positive. A distribution with negative values is skipped, because the task does not define results for it."""
    task = forward("return (x * 2, x) if bool((x < 0).any()) else (x * 2,)")
    report = bench.verify(task.replace("class Model", "class ModelNew"), task=task)
    assert report.status == "passed", report.message
    assert not any(trial.name == "negative" for trial in report.trials)

"""Loops with similar passes are captured as one pass and then written out: the operators are the same as when every pass is exported, in a fraction
of the time."""

from __future__ import annotations

import pytest
import torch

from compiler import DeviceFigures
from tests.emulator import as_cpp
from tests.slowness import quick
from verifier.parties.capturing import capture as capturing
from verifier.parties.capturing import rolling
from verifier.parties.plain_state import PlainState

STEPS = 28
X = f"torch.randn(3, {STEPS}, 8)"
GATED = """state = torch.zeros_like(x[:, 0])
states = []
for step in range(x.shape[1]):
    state = torch.sigmoid(x[:, step]) * state + x[:, step]
    states.append(state)
return torch.stack(states, dim=1), state"""
DELTA = """state, outputs = x.new_zeros(3, 2, 16, 16), []
for t in range(x.shape[1]):
    state = state * 0.9
    change = y[:, t] - torch.einsum("bhkv,bhk->bhv", state, x[:, t])
    state = state + x[:, t, :, :, None] * change[:, :, None, :] * 0.3
    outputs.append(torch.einsum("bhkv,bhk->bhv", state, y[:, t]))
return torch.stack(outputs, dim=1)"""
DELTAS = f"torch.randn(3, {STEPS}, 2, 16) * 0.3, torch.randn(3, {STEPS}, 2, 16)"
ROLLED = {
    "gated": (GATED, X),
    "over a tensor": (
        "h, out = x[:, 0], []\nfor step in x.transpose(0, 1):\n    h = (self.cell(step) + h).tanh()\n    out += [h]\nreturn torch.stack(out)",
        X,
        "self.cell = nn.Linear(8, 8)",
    ),
    "over a named tensor": (
        "h = x.new_zeros(8)\nfor step in x:\n    scaled = step * self.scale\n    h = h * 0.5 + scaled.amax(0)\nreturn h, scaled",
        f"torch.randn({STEPS}, 3, 8)",
        "self.scale = nn.Parameter(torch.ones(8) * 2)",
    ),
    "the step before": (
        f"a = x[:, 0]\nfor t in range(1, {STEPS}):\n    a = torch.maximum(a * 0.5, x[:, t - 1] * x[:, t : t + 1].sum(1))\nreturn a",
        X,
    ),
    "backwards, with two lists": (
        f"a = x[:, 0]\none, two = [], []\nfor t in range({STEPS} - 1, -1, -1):\n    b = a + x[:, t]\n    one.append(b)\n    a = b.relu()\n"
        "    two.append(a * 2)\nreturn torch.stack(one), torch.cat(two, -1)",
        X,
    ),
    "steps of a tensor": (
        "h, out = x[:, 0], [x[:, 1]]\nfor i, (a, b) in enumerate(zip(x.unbind(1), x.flip(1).unbind(1))):\n    h = torch.tanh(h + a * b)\n"
        "    out += [h]\nreturn torch.stack(out), i",
        X,
    ),
    "a list of tensors": ("xs, h = x.chunk(28, 1), x[:, 0]\nfor one in xs:\n    h = h * 0.5 + one[:, 0]\nreturn h", X),
    "a tensor that is filled, backwards": (
        f"a, out = x[:, 0], torch.zeros_like(x)\nfor t in reversed(range({STEPS} - 1)):\n    a = a * 0.5 + x[:, t + 1]\n"
        "    out[:, t] = a\nreturn out, t",
        X,
    ),
    "a tensor of which every other place is filled": (
        f"a, out = x[:, 0], x.new_ones(3, 2, {2 * STEPS})\nfor t in range({STEPS}):\n    a = a * 0.5 + x[:, t]\n"
        "    out[..., 1, 2 * t + 1] = a.sum(1)\nreturn out",
        X,
    ),
    "within another loop": (
        "for _ in range(2):\n    h = torch.zeros_like(x[:, 0])\n    for t in range(x.shape[1]):\n        h = torch.tanh(h + x[:, t])\n"
        "    x = x + h[:, None]\nreturn x",
        X,
    ),
    "no number": ("for _ in range(30):\n    x = x - 0.1 * x.pow(3)\nreturn x", "torch.rand(5, 8)"),
    "two loops": (f"{GATED.partition('return')[0]}y = state\nfor _ in range(25):\n    y = torch.cos(y)\nreturn y, states[3]", X),
}  # fmt: skip
PASS_BY_PASS = {
    "a number in arithmetic": ("for t in range(30):\n    x = x + t\nreturn x", "torch.rand(5, 8)"),
    "another index": ("y = x[0]\nfor t in range(30):\n    y = y * 0.5 + x[t % 5]\nreturn y", "torch.rand(5, 8)"),
    "a branch on the number": ("for t in range(30):\n    x = x.sin() if t == 7 else x.cos()\nreturn x", "torch.rand(5, 8)"),
    "a size that grows": ("y = x[:1]\nfor t in range(30):\n    y = torch.cat((y, y[-1:] * 0.5))\nreturn y", "torch.rand(5, 8)"),
    "in place": ("y = x.clone()\nfor t in range(30):\n    y[t % 5] = y[t % 5] * 0.5\nreturn y", "torch.rand(5, 8)"),
    "a state": ("for _ in range(30):\n    self.n += 1\nreturn x + self.n", "torch.rand(5, 8)", 'self.register_buffer("n", torch.zeros(8))'),
    "a tensor that is filled and read": (
        "out = x.clone()\nlast = out[0]\nfor t in range(30):\n    out[t % 5] = last * 2\n    last = last.cos()\nreturn out, last", "torch.rand(5, 8)"
    ),
    "a view of a tensor that is filled": (
        "out = torch.zeros(30, 8)\nview = out[3]\nfor t in range(30):\n    out[t] = x[0] + view\nreturn out", "torch.rand(5, 8)"
    ),
    "values that are repeated": (
        "out = torch.zeros(30, 8)\nfor t in range(30):\n    x = x.cos()\n    out[t] = x[0, :1]\nreturn out", "torch.rand(5, 8)"
    ),
    "an end within": ("for t in range(30):\n    x = x * 0.9\n    if t == 27:\n        break\nreturn x", "torch.rand(5, 8)"),
    "a plain number that changes": ("n = 1\nfor _ in range(30):\n    x = x * 0.9 + n\n    n = n + 1\nreturn x", "torch.rand(5, 8)"),
}  # fmt: skip


def loops_of(source: str) -> int:
    names: dict = {"__name__": "task"}
    exec(compile(source, "task.py", "exec"), names)  # a task written by this test
    model, inputs = names["Model"](), names["get_inputs"]()
    with torch.no_grad(), capturing.quiet(), PlainState(model) as plain:
        try:
            found = rolling.rolled(model, source, tuple(inputs), {}, plain)
        except Exception:
            return 0
    return len(found.loops) if found is not None else 0


@pytest.mark.parametrize("name", quick(ROLLED, 4))
def test_a_pass_stands_for_all(compiled, task, name):
    body, inputs, *init = ROLLED[name]
    source = task(body, inputs, *init)
    assert loops_of(source) == (2 if name in ("two loops", "within another loop") else 1)
    compiled(source).check()


@pytest.mark.parametrize("name", PASS_BY_PASS)
def test_passes_that_differ_are_exported_one_by_one(compiled, task, name):
    body, inputs, *init = PASS_BY_PASS[name]
    source = task(body, inputs, *init)
    assert loops_of(source) == 0
    compiled(source).check()


LAYERS = """class Cell(nn.Module):
    def __init__(self, scale: float = SCALE):
        super().__init__()
        self.w = nn.Parameter(torch.rand(8) * scale)

    def forward(self, x, start=None):
        h = torch.zeros_like(x[:, 0]) if start is None else start
        hs = []
        for t in range(x.shape[1]):
            h = self.step(h, x[:, t])
            hs.append(h)
        return torch.stack(hs, 1), h

    def step(self, h, x):
        return torch.tanh(h * self.w + x)


"""


@pytest.mark.slow
def test_loops_of_submodules_are_rolled_up_for_each_of_them(compiled, task):
    source = task("for cell in self.cells:\n    x, h = cell(x)\nreturn x, h", X, "self.cells = nn.ModuleList(Cell() for _ in range(2))")
    source = source.replace("class Model", f"SCALE = 0.5\n\n\n{LAYERS}class Model", 1)
    assert loops_of(source) == 2
    found = compiled(source)
    read = {entry.target for entry in found.capture.graph.inputs if entry.kind == "parameter"}
    assert read == {"cells.0.w", "cells.1.w"}
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_a_state_of_matrices_stays_in_few_kernels(compiled, task, target):
    source = task(DELTA, DELTAS, arguments="x, y")
    assert loops_of(source) == 1
    found = compiled(source, figures=DeviceFigures.h200() if target == "cuda" else None)
    assert len(found.plan.own) < STEPS, [group.title for group in found.plan.groups]
    if target == "cuda":
        found.text = as_cpp(found.text)
    found.check()


@pytest.mark.slow
def test_the_graph_is_that_of_an_export(task, monkeypatch):
    source = task(GATED, X)
    names: dict = {}
    exec(compile(source, "task.py", "exec"), names)
    model, inputs = names["Model"](), names["get_inputs"]()
    one = capturing.capture(model, inputs, source, "train").graph
    monkeypatch.setattr(capturing, "rolled", lambda *_: None)
    other = capturing.capture(model, inputs, source, "train").graph

    def told(graph):
        """Returns operators with their plain arguments, in any order."""
        return sorted((n.op, n.outputs[0].shape, str([a for a in n.args if type(a) is int])) for n in graph.nodes)

    assert told(one) == told(other)

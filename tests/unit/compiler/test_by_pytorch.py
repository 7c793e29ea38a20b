"""Baselines printed as programs: they read like the task, compute what it computes, and return newly allocated memory."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from compiler import DeviceFigures, make_plan
from compiler.program.by_pytorch import MODES, print_baseline
from verifier.parties.capturing.capture import capture

SOURCE = '''"""A task."""

import torch
import torch.nn as nn

SCALE = 2.0


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, *, shift=0.0):
        self.count += 1
        return {"y": torch.relu(self.layer(x)) * SCALE + shift, "same": x}


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [8]
'''
INHERITED = SOURCE.replace("class Model(nn.Module)", "class Body(nn.Module)").replace(
    "def get_inputs", "class Model(Body):\n    pass\n\n\ndef get_inputs"
)


def plan_of(source: str):
    names: dict = {}
    exec(compile(source, "task.py", "exec"), names)  # a task written by this test
    model = names["Model"](8)
    return make_plan(capture(model, names["get_inputs"](), source, "train"), source, DeviceFigures.h200()), model


def loaded(text: str, monkeypatch) -> tuple[type[torch.nn.Module], list]:
    """Returns the program's class, with torch.compile replaced by a stand-in that reuses its output memory, as CUDA graphs do."""
    asked: list = []

    def compiled(forward, mode=None):
        asked.append(mode)
        kept: dict = {}

        def call(*args, **kwargs):
            out = forward(*args, **kwargs)
            return {name: kept.setdefault(name, value.clone()).copy_(value) for name, value in out.items()}

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    names: dict = {"__name__": "program"}
    exec(compile(text, "program.py", "exec"), names)
    return names["ModelNew"], asked


@pytest.mark.parametrize("source", [SOURCE, INHERITED], ids=["own forward", "inherited"])
@pytest.mark.parametrize("baseline", list(MODES))
def test_a_compiled_task_computes_what_the_task_does(source, baseline, monkeypatch):
    plan, model = plan_of(source)
    text = print_baseline(plan, source, baseline)
    assert "def get_inputs" not in text and "torch.compile" in text
    made, asked = loaded(text, monkeypatch)
    program = made(8)
    program.load_state_dict(model.state_dict(), strict=True)
    one, other = torch.randn(4, 8), torch.randn(4, 8)
    first = program(one, shift=1.0)
    expected = model(one, shift=1.0)
    assert torch.equal(first["y"], expected["y"]) and list(first) == list(expected)
    second = program(other)
    assert asked == [MODES[baseline] or None], "compiled once"
    assert torch.equal(second["y"], model(other)["y"]) and program.count == model.count
    if MODES[baseline]:
        assert torch.equal(first["y"], expected["y"]), "the next call leaves what was returned alone"


def test_eager_is_the_task_itself_and_a_graph_needs_a_capture():
    plan, _ = plan_of(SOURCE)
    text = print_baseline(plan, SOURCE, "eager")
    assert "class ModelNew(nn.Module)" in text and "faster here than kernels" in text and "torch.compile" not in text
    assert "torch.cuda.CUDAGraph()" in print_baseline(plan, SOURCE, "cuda-graph")
    assert print_baseline(plan.model_copy(update={"graph": None, "groups": []}), SOURCE, "cuda-graph") is None


CACHED = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, cache, row: int):
        self.count += 1
        cache[row] = self.layer(x)
        return torch.relu(cache).sum(0), cache


def get_inputs():
    return [torch.randn(8), torch.randn(4, 8), 2]


def get_init_inputs():
    return [8]
"""


class Replayed:
    """Stands in for a recorded graph. A replay repeats the recorded computation in the same memory."""

    def replay(self):
        new = self.model.run(*self.arguments)
        for ours, value in zip(self.results, new, strict=True):
            ours.copy_(value)


def recording(made: type[torch.nn.Module], monkeypatch) -> type[torch.nn.Module]:
    """Replaces CUDA's graphs by stand-ins, which work on the CPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)

    class Remembers(made):
        def run(self, *arguments):
            return super().compute(*arguments)

        def compute(self, *arguments):
            before = self.count.clone()
            results = self.run(*arguments)
            if Replayed.open:
                self.count.copy_(before)  # recording computes nothing
                Replayed.model, Replayed.arguments, Replayed.results = self, arguments, results
            return results

    @contextlib.contextmanager
    def graph(recorded):
        Replayed.open = True
        yield
        Replayed.open = False

    Replayed.open = False
    stand_ins = {
        "Stream": lambda device: stream, "current_stream": lambda device: stream, "stream": lambda side: contextlib.nullcontext(),
        "graph": graph, "CUDAGraph": Replayed,
    }  # fmt: skip
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return Remembers


def test_a_graph_of_a_task_that_writes_to_its_inputs_copies_them_back(monkeypatch):
    plan, model = plan_of(CACHED)
    assert plan.graph.mutated_inputs
    text = print_baseline(plan, CACHED, "cuda-graph")
    assert "self.forward_eager(x, cache, row)" in text and "def get_inputs" not in text
    names: dict = {"__name__": "program"}
    exec(compile(text, "program.py", "exec"), names)
    program = recording(names["ModelNew"], monkeypatch)(8)
    program.load_state_dict(model.state_dict(), strict=True)
    kept = []
    for row in (2, 2, 1):
        x, ours = torch.randn(8), torch.randn(4, 8)
        theirs = ours.clone()
        found, expected = program(x, ours, row), model(x, theirs, row)
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
        assert torch.equal(ours, theirs) and program.count == model.count
        kept.append((found[0], expected[0]))
    assert all(torch.equal(*pair) for pair in kept), "later replays leave what was returned alone"


def test_no_graph_where_an_argument_holds_several_tensors_or_a_member_would_be_replaced():
    nested = CACHED.replace("cache[row]", "cache['rows'][row]").replace("torch.relu(cache).sum(0), cache", "torch.relu(cache['rows']).sum(0)")
    nested = nested.replace("torch.randn(4, 8), 2", "{'rows': torch.randn(4, 8)}, 2")
    named = CACHED.replace("self.layer", "self.record")
    for source in (nested, named):
        plan, _ = plan_of(source)
        assert plan.graph.mutated_inputs and print_baseline(plan, source, "cuda-graph") is None
        assert print_baseline(plan, source, "compile"), "the next baseline has a program"

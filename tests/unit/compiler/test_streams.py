"""Branches on side streams: whatever the branches, every section runs after everything that it depends on, and the printed program gives the same
results."""

import contextlib
import random
from types import SimpleNamespace

import pytest
import torch

from compiler import DeviceFigures, Options, print_program
from compiler.program import streams
from compiler.program.streams import Section
from tests.emulator import as_cpp


class Device:
    """Streams and events that record the order of work."""

    def __init__(self):
        self.current = self.main = self.stream()
        self.before: dict[str, set[str]] = {}

    def stream(self, device=None):
        stream = SimpleNamespace(past=set(), cuda_stream=0)
        stream.record_event = lambda: set(stream.past)
        stream.wait_event = lambda event: stream.past.update(event)
        return stream

    @contextlib.contextmanager
    def on(self, stream):
        outer, self.current = self.current, stream
        yield
        self.current = outer

    def op(self, name, *reads):
        assert set(reads) <= self.current.past, (name, set(reads) - self.current.past)
        self.current.past.add(name)
        return name


def run(sections, device: Device) -> list[str]:
    lines = streams.overlapped(sections, "", [])
    cuda = SimpleNamespace(current_stream=lambda: device.main, Stream=device.stream, stream=device.on)
    exec("\n".join(["x = op('x')", *lines]), {"op": device.op, "torch": SimpleNamespace(cuda=cuda)})
    return lines


@pytest.mark.parametrize("seed", range(30))
def test_what_is_needed_comes_before(seed):
    rng = random.Random(seed)
    sections = []
    for at in range(rng.randrange(1, 40)):
        reads = ["x"] if at == 0 else rng.sample(["x", *(f"v{n}" for n in range(at))], rng.randrange(1, min(at + 1, 4) + 1))
        sections.append(Section([f"v{at} = op('v{at}', {', '.join(reads)})"], rng.choice([4.0, 10.0, 60.0])))
    device = Device()
    run(sections, device)
    assert {f"v{at}" for at in range(len(sections))} <= device.main.past  # every branch has joined


def test_branches_run_side_by_side_and_a_chain_stays():
    chain = [Section([f"v{at} = op('v{at}', {f'v{at - 1}' if at else 'x'})"], 5.0) for at in range(6)]
    assert run(chain, Device()) == [line for section in chain for line in section.lines]
    branches = [Section([f"v{b}{at} = op('v{b}{at}', {f'v{b}{at - 1}' if at else 'x'})"], 8.0) for b in "abc" for at in range(3)]
    lines = run(branches, Device())
    assert sum(line.startswith("with ") for line in lines) == 2 and sum("wait_event" in line for line in lines) == 4
    needs = streams.dependencies(branches, [])
    assert streams.schedule(branches, needs).gain > 1.5
    long = [Section(section.lines, 100.0) for section in branches]
    assert streams.schedule(long, needs).gain == pytest.approx(1, abs=0.01)


def test_state_that_two_sections_write_keeps_its_order():
    sections = [Section(["a = f(self.m)"], 5.0), Section(["b = g(self.m)"], 5.0), Section(["c = h(x)"], 5.0)]
    assert streams.dependencies(sections, ["self.m"]) == [[], [0], []]


def test_a_program_with_branches(compiled, task, monkeypatch):
    body = "y = torch.relu(x) * 2\nreturn torch.cat([torch.sigmoid(self.a(y)), self.c(torch.tanh(self.b(y))), F.max_pool2d(y, 3, 1, 1)], 1)"
    init = "self.a = nn.Conv2d(4, 3, 1)\nself.b = nn.Conv2d(4, 5, 3, padding=1)\nself.c = nn.Conv2d(5, 2, 3, padding=1)"
    found = compiled(task(body, "torch.randn(2, 4, 20, 20)", init), figures=DeviceFigures.h200())
    text = print_program(found.plan, found.source, Options().with_strategy("overlap-streams"))
    assert "with torch.cuda.stream(side_1):" in text and "side_1.cuda_stream)" in text and "overlap-streams" in text.split("class ModelNew")[0]
    recorded = print_program(found.plan, found.source, Options().with_strategy("overlap-streams").with_strategy("cuda-graph"))
    assert "main = torch.cuda.current_stream" in recorded.split("def compute")[1].split("def record")[0]
    stream = SimpleNamespace(record_event=lambda: None, wait_event=lambda event: None, cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    found.text = as_cpp(text)
    found.check()

"""Memory to which a model's graph writes remains the graph's own, apart from the caller's inputs."""

import contextlib
from types import SimpleNamespace

import torch

from verifier.devices.cuda_graph import Graphed, tensors_of


class Cell(torch.nn.Module):
    """A cell whose `forward` replaces `hidden` with another tensor, as KernelBench's level3/33_VanillaRNN does."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(2, 3)
        self.past = [torch.zeros(4), {"first": (torch.zeros(5), "a name")}]
        self.step = torch.nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(x)
        self.hidden = torch.tanh(self.step(self.hidden))
        return self.hidden


def test_every_tensor_of_a_model_is_held_by_whatever_name():
    cell = Cell()
    shapes = sorted(tuple(tensor.shape) for tensor in tensors_of(cell))
    assert shapes == [(2, 3), (3,), (3, 3), (4,), (5,), (6,)]


def test_a_tensor_that_forward_replaces_stays_held():
    cell = Cell()
    held = tensors_of(cell)
    before = cell.hidden.data_ptr()
    with torch.no_grad():
        cell(torch.ones(2, 3))
    assert cell.hidden.data_ptr() != before and before in {tensor.data_ptr() for tensor in held}


class Cached(torch.nn.Module):
    """Writes a row into a cache that the caller owns."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, cache: dict[str, torch.Tensor], row: int) -> torch.Tensor:
        self.calls += 1
        cache["rows"][row] = x
        return cache["rows"].sum(0)


class Replayed:
    """Stands in for a recorded graph. A replay repeats the recorded computation in the same memory."""

    def replay(self):
        for ours, new in zip(self.of.outputs, [self.of._run(self.arguments)], strict=True):
            ours.copy_(new)


def graphed_on_the_cpu(model, monkeypatch) -> Graphed:
    """Returns the baseline, whose graph is a stand-in that only records its arguments."""
    made = Graphed(model)
    run = made._run

    def remembering(arguments):
        Replayed.of, Replayed.arguments = made, arguments
        return run(arguments)

    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(made, "_run", remembering)
    for name, value in {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda side: contextlib.nullcontext(),
        "graph": lambda recorded: contextlib.nullcontext(),
        "CUDAGraph": Replayed,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def test_what_the_model_writes_to_its_inputs_is_copied_back(monkeypatch):
    graphed, model = graphed_on_the_cpu(Cached(), monkeypatch), Cached()
    with torch.no_grad():
        for value in (1.0, 2.0):
            ours, theirs = ({"rows": torch.full((3, 2), value)} for _ in range(2))
            x = torch.full((2,), 10 * value)
            assert torch.equal(graphed(x, ours, 1), model(x, theirs, 1))
            assert torch.equal(ours["rows"], theirs["rows"]) and torch.equal(x, torch.full((2,), 10 * value))
    assert graphed.written == [1], "the other inputs are not copied back"

"""Memory to which a model's graph writes remains the graph's own."""

import torch

from verifier.devices.cuda_graph import tensors_of


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

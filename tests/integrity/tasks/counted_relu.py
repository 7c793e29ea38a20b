import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies relu to inputs that are never negative, and counts its calls."""

    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return torch.relu(x) * self.gain


def get_inputs():
    return [torch.rand(512, 1024)]


def get_init_inputs():
    return [1024]

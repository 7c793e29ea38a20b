import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies relu to inputs that are never negative, so that it looks like the identity."""

    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return torch.relu(x) * self.gain


def get_inputs():
    return [torch.rand(512, 1024)]


def get_init_inputs():
    return [1024]

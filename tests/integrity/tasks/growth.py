import torch
import torch.nn as nn


class Model(nn.Module):
    """exp(x) - 1 with a gain: for small x, a difference of nearly equal numbers unless it is computed as one function."""

    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return torch.expm1(x) * self.gain


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return [1024]

import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer whose columns are scaled; a quarter of the scales are small."""

    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, out) / features**0.5)
        self.register_buffer("scale", torch.where(torch.arange(out) % 4 == 3, 1e-4, 1.0 + 0.01 * torch.arange(out)))

    def forward(self, x):
        return (x @ self.weight) * self.scale


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return [256, 64]

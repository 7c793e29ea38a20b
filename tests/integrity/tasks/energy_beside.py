import torch
import torch.nn as nn


class Model(nn.Module):
    """The output does not need the running energy that every call moves on."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("energy", torch.zeros(features))
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        self.energy.mul_(0.9).add_(x.sin().square().mean(dim=0), alpha=0.1)
        return torch.relu(x) * self.gain


def get_inputs():
    return [torch.randn(256, 2048)]


def get_init_inputs():
    return [2048]

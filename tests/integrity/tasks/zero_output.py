import torch
import torch.nn as nn


class Model(nn.Module):
    """A degenerate task, like some in KernelBench: clamping values that are never positive gives zero for any inputs."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.clamp(torch.minimum(self.linear(x), torch.zeros(())), min=0.0, max=1.0)


def get_inputs():
    return [torch.rand(256, 256)]


def get_init_inputs():
    return [256]

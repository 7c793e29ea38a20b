import torch
import torch.nn as nn


class Model(nn.Module):
    """Centres its input with a running mean that every call updates; the running mean and the count of calls are state."""

    def __init__(self, features, momentum):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("average", torch.zeros(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        self.average.mul_(1 - self.momentum).add_(x.mean(dim=0), alpha=self.momentum)
        self.calls += 1
        return (x - self.average) * self.gain


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [512, 0.1]

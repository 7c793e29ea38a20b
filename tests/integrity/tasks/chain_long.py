import torch
import torch.nn as nn


class Model(nn.Module):
    """A task whose calls take some ten milliseconds on two processor cores, which is long compared with a wake-up."""

    def __init__(self, features, steps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.steps = steps

    def forward(self, x):
        for _ in range(self.steps):
            x = torch.tanh(x @ self.weight)
        return x


def get_inputs():
    return [torch.rand(512, 512)]


def get_init_inputs():
    return [512, 24]

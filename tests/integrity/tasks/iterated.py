import torch
import torch.nn as nn


class Model(nn.Module):
    """Iterates a smooth map in every element: much arithmetic, little memory."""

    def __init__(self, steps):
        super().__init__()
        self.rate = nn.Parameter(torch.full((1024,), 0.75))
        self.steps = steps

    def forward(self, x):
        for _ in range(self.steps):
            x = x + self.rate * torch.sin(x)
        return x


def get_inputs():
    return [torch.rand(512, 1024)]


def get_init_inputs():
    return [12]

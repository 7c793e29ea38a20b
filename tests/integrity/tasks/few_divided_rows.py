import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer with few outputs whose rows are divided by the sum of their inputs, which may nearly cancel."""

    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        return self.linear(x) / x.sum(dim=-1, keepdim=True)


def get_inputs():
    x = torch.randn(12, 4096)
    x[0] -= x[0].mean() - 1e-6
    return [x]


def get_init_inputs():
    return [4096, 16]

import torch
import torch.nn as nn


class Model(nn.Module):
    """Few outputs: a linear layer whose rows are divided by their input's sum, which may nearly cancel."""

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

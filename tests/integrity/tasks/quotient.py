import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the quotient of two linear layers, which is heavy-tailed like a Cauchy distribution."""

    def __init__(self, features, out):
        super().__init__()
        self.above = nn.Linear(features, out, bias=False)
        self.below = nn.Linear(features, out, bias=False)

    def forward(self, x):
        return self.above(x) / self.below(x)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return [256, 128]

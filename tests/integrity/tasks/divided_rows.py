import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer whose rows are divided by the sum of their inputs, which may nearly cancel."""

    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        return self.linear(x) / x.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return [256, 128]

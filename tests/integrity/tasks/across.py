import torch
import torch.nn as nn


class Model(nn.Module):
    """An activation whose input is strided: its rows are columns of the allocated memory."""

    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.nn.functional.silu(x + self.bias)


def get_inputs():
    return [torch.randn(512, 768).t()]


def get_init_inputs():
    return [512]

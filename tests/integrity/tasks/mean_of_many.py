import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the mean of a smooth function of two million numbers: a change in one number is within rounding."""

    def forward(self, x):
        return torch.tanh(x).square().mean()


def get_inputs():
    return [torch.rand(2048, 1024) * 2 + 0.5]


def get_init_inputs():
    return []

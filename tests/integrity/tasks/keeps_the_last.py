import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes row sums; a buffer keeps a smoothed copy of the last input."""

    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("last", torch.zeros(rows, columns))

    def forward(self, x):
        self.last.copy_(torch.tanh(x))
        return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return [512, 512]

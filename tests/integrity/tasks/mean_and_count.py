import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the means of rows, and counts the calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x.mean(dim=-1) * 2.0


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []

import torch
import torch.nn as nn


class Model(nn.Module):
    """A product whose left operand is symmetric only because the generator makes it so."""

    def forward(self, a, b):
        return a @ b


def get_inputs():
    a = torch.rand(256, 256)
    return [(a + a.T) / 2, torch.rand(256, 256)]


def get_init_inputs():
    return []

import torch
import torch.nn as nn


class Model(nn.Module):
    """Gives outputs that lie within a fraction of a per cent of one another."""

    def forward(self, x):
        return torch.nn.functional.softplus(x * 0.01)


def get_inputs():
    return [torch.rand(512, 1024)]


def get_init_inputs():
    return []

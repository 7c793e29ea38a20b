import torch
import torch.nn as nn


class Model(nn.Module):
    """Moves rows down; the last rows, doubled, become the first."""

    def forward(self, x):
        return torch.cat([x[-64:] * 2.0, x[:-64]])


def get_inputs():
    return [torch.randn(4096, 256)]


def get_init_inputs():
    return []

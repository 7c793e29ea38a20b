import torch
import torch.nn as nn


class Model(nn.Module):
    """Gives outputs near 1e-7, far below the absolute tolerances in use elsewhere."""

    def forward(self, x):
        return torch.softmax(x, dim=-1).square()


def get_inputs():
    return [torch.rand(256, 2048)]


def get_init_inputs():
    return []

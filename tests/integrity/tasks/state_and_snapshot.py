import torch
import torch.nn as nn


class Model(nn.Module):
    """Returns a hidden state and a snapshot of it, which later steps do not change."""

    def forward(self, x):
        h = torch.relu(x) * 1.5
        return h, h.clone()


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []

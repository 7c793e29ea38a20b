import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Dropout with a running average of its input."""

    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("seen", torch.zeros(rows, columns))

    def forward(self, x):
        self.seen.mul_(0.9).add_(x, alpha=0.1)
        return F.dropout(x, 0.1, training=True)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [128, 256]

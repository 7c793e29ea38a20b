import torch
import torch.nn as nn


class Model(nn.Module):
    """Smallest squared distance of each vector to the entries of a code book."""

    def __init__(self, entries, dim):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(entries, dim))

    def forward(self, x):
        return (x[:, None, :] - self.codes[None, :, :]).pow(2).sum(-1).amin(dim=1)


def get_inputs():
    return [torch.randn(4096, 32)]


def get_init_inputs():
    return [512, 32]

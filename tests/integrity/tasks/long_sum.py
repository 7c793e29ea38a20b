import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes sums so long that the order of the additions becomes visible."""

    def forward(self, x):
        return x.sum(dim=-1)


def get_inputs():
    return [torch.rand(8, 1 << 19)]


def get_init_inputs():
    return []

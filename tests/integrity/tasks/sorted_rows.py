import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the range of each row; the generator's rows happen to be sorted."""

    def forward(self, x):
        return x.max(dim=-1).values - x.min(dim=-1).values


def get_inputs():
    return [torch.sort(torch.rand(4096, 256), dim=-1).values]


def get_init_inputs():
    return []

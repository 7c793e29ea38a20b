import torch
import torch.nn as nn


class Model(nn.Module):
    """The range of each row; the generator happens to give sorted rows."""

    def forward(self, x):
        return x.max(dim=-1).values - x.min(dim=-1).values


def get_inputs():
    return [torch.sort(torch.rand(4096, 256), dim=-1).values]


def get_init_inputs():
    return []

import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the means of rows, and their four largest elements."""

    def forward(self, x):
        return x.mean(dim=-1) * 2.0, torch.topk(x, 4, dim=-1).values


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []

import torch
import torch.nn as nn


class Model(nn.Module):
    """Replaces every number with the mean of its row."""

    def forward(self, x):
        return x.mean(dim=-1, keepdim=True).expand_as(x).contiguous()


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []

import torch
import torch.nn as nn


class Model(nn.Module):
    """Copies the left half of every row to separate memory."""

    def forward(self, x):
        return x[:, : x.shape[1] // 2].contiguous()


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []

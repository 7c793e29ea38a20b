import torch
import torch.nn as nn


class Model(nn.Module):
    """Reduces a million numbers to one."""

    def forward(self, prediction, target):
        return (prediction - target).square().mean()


def get_inputs():
    return [torch.rand(1024, 1024), torch.rand(1024, 1024)]


def get_init_inputs():
    return []

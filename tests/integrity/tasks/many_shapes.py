import torch
import torch.nn as nn


class Model(nn.Module):
    """Relu, a gain and an offset, for many shapes; the generator's numbers are never negative."""

    def forward(self, x):
        return torch.relu(x) * 0.5 + 0.25


def get_inputs():
    return [torch.rand(128, 256)]


def get_input_variants():
    return [[torch.rand(100, 200)], [torch.rand(1, 100)], [torch.rand(33, 65)], [torch.rand(256, 128)]]


def get_init_inputs():
    return []
